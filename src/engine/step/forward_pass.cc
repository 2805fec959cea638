#include "engine/step/forward_pass.h"

#include "device/arena.h"
#include "ops/collective.h"

namespace tern::engine {

Status ForwardPass::run(const model::Batch& b, const int32_t* owner, std::span<const int32_t> engine_tokens,
                        device::Stream stream) const {
  device::Arena arena(workspace, workspace_bytes);
  const model::ForwardContext context{b, *cache, stream, arena, nullptr, communicator, {experts, engine_tokens}};
  const TensorView rows = logits.first(b.logit_rows);
  if (communicator.alone() || model->info().pooled > 0) return model->forward(context, rows);
  const TensorView mine = part.first(b.logit_rows);
  TERN_RETURN_IF_ERROR(model->forward(context, mine));
  return ops::all_to_all({communicator, mine, first_column, owner, rows}, stream);
}

}  // namespace tern::engine
