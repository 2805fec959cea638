#include "engine/step/step_runner.h"

#include "device/arena.h"
#include "ops/embedding.h"

namespace tern::engine {

Status StepRunner::forward(Step& step, const Step* previous) {
  const device::Stream stream = device().stream();
  // The tower runs beside the steps before; this one reads what it makes.
  if (!step.vision.items.empty()) TERN_RETURN_IF_ERROR(parts_.vision->wait(stream));
  if (parts_.graphs != nullptr) {
    TERN_ASSIGN_OR_RETURN(const bool replayed, parts_.graphs->forward(step, stream));
    if (replayed) return {};
  }
  TERN_RETURN_IF_ERROR(step.upload(device(), stream));
  if (previous != nullptr) {
    TERN_RETURN_IF_ERROR(
        ops::resolve_ids({step.batch.token_ids, step.batch.token_source, previous->sampling.device_ids()}, stream));
  }
  if (RankGroup* const group = parts_.group.get(); group != nullptr) {
    // From here on the others read this step's inputs.
    group->forward(step);
    return group->settle(group->first().forward(step.batch, *parts_.cache));
  }
  device::Arena arena(parts_.workspace.data(), parts_.workspace.bytes());
  const model::ForwardContext context{step.batch, *parts_.cache, stream, arena, nullptr};
  return parts_.model->forward(context, parts_.logits.first(step.batch.logit_rows));
}

Status StepRunner::sample(Step& step) {
  const device::Stream stream = device().stream();
  if (parts_.graphs != nullptr) {
    TERN_ASSIGN_OR_RETURN(const bool replayed, parts_.graphs->sample(step, stream));
    if (replayed) return {};
  }
  RankGroup* const group = parts_.group.get();
  if (group == nullptr) {
    return parts_.sampler->run(step.sampling, parts_.logits.first(step.batch.logit_rows), device(), stream);
  }
  group->sample(step);
  const RankPart& mine = group->first();
  Status status = mine.sample(step.sampling, step.batch.logit_rows);
  if (status.ok()) {
    sample::CopyList list;
    mine.deal->give_ids(step.sampling, step.batch.logit_rows, list);
    status = list.run(device(), stream);
  }
  return group->settle(std::move(status));
}

Status StepRunner::inject(int rank, device::Fault fault) {
  if (rank == 0) return device().inject(fault, device().stream());
  parts_.group->inject(rank, fault);
  return {};
}

}  // namespace tern::engine
