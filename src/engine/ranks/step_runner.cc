#include "engine/ranks/step_runner.h"

#include "ops/embedding.h"

namespace tern::engine {

Status StepRunner::forward(Step& step, const Step* previous) {
  if (Lockstep* all = parts_.lockstep; all != nullptr) {
    TERN_RETURN_IF_ERROR(all->meet(parts_.engine, step.batch.tokens, step.engine_tokens(all->engines())));
  }
  if (parts_.group != nullptr) return parts_.group->forward(step, previous, parts_.vision);
  const device::Stream stream = device().stream();
  // The tower runs beside the steps before; this one reads what it makes.
  if (!step.vision.items.empty()) TERN_RETURN_IF_ERROR(parts_.vision->wait(stream));
  if (parts_.graphs != nullptr) {
    TERN_ASSIGN_OR_RETURN(const bool replayed, parts_.graphs->forward(step, stream));
    if (replayed) return {};
  }
  TERN_RETURN_IF_ERROR(step.upload(device(), stream));
  if (previous != nullptr && step.batch.tokens > 0) {
    TERN_RETURN_IF_ERROR(
        ops::resolve_ids({step.batch.token_ids, step.batch.token_source, previous->sampling.device_ids()}, stream));
  }
  return parts_.pass.run(step.batch, nullptr, engine_tokens(step), stream);
}

Status StepRunner::sample(Step& step) {
  if (parts_.group != nullptr) return parts_.group->sample(step);
  const device::Stream stream = device().stream();
  if (parts_.pass.model->info().pooled > 0) return step.download_pooled(parts_.pass.logits, device(), stream);
  if (parts_.graphs != nullptr) {
    TERN_ASSIGN_OR_RETURN(const bool replayed, parts_.graphs->sample(step, stream));
    if (replayed) return {};
  }
  return parts_.sampler->run(step.sampling, parts_.pass.logits.first(step.batch.logit_rows), device(), stream);
}

Status StepRunner::inject(int rank, device::Fault fault) {
  if (parts_.group == nullptr) return device().inject(fault, device().stream());
  parts_.group->inject(rank, fault);
  return {};
}

Status StepRunner::synchronize() {
  return parts_.group == nullptr ? device().synchronize(device().stream()) : parts_.group->synchronize();
}

}  // namespace tern::engine
