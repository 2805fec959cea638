#include "engine/ranks/rank_part.h"

#include <algorithm>
#include <utility>

#include "model/ranks.h"
#include "ops/collective.h"
#include "ops/embedding.h"

namespace tern::engine {

Expected<std::unique_ptr<RankPart>> RankPart::create(const RankModel& rank, const device::Communicator& communicator,
                                                     const Shared& shared) {
  std::unique_ptr<RankPart> p(new RankPart(shared, communicator));
  device::Device& device = *rank.device;
  p->device_ = &device;
  TERN_RETURN_IF_ERROR(p->make_pass(rank, communicator, shared));
  Step::Parts mine = shared.sizes;
  mine.sampling = sample::SamplingDeal::limits_of(mine.sampling, communicator.ranks);
  for (size_t i = 0; i < 2; ++i) {
    TERN_ASSIGN_OR_RETURN(Step step, Step::of_rank(*shared.steps[i], mine, device, p->mine_[0].get()));
    p->mine_[i] = std::make_unique<Step>(std::move(step));
    TERN_ASSIGN_OR_RETURN(p->ends_[i], device.make_event());
  }
  TERN_ASSIGN_OR_RETURN(sample::Sampler sampler, sample::Sampler::create(mine.sampling, device));
  p->sampler_ = std::make_unique<sample::Sampler>(std::move(sampler));
  return p;
}

Status RankPart::make_pass(const RankModel& rank, const device::Communicator& communicator, const Shared& shared) {
  device::Device& device = *rank.device;
  const int64_t outputs = rank.model->info().outputs(), most = limits_.max_logit_rows;
  const auto [first, columns] = model::output_part(rank.model->info(), communicator.rank, communicator.ranks);
  const size_t workspace = std::max<size_t>(rank.model->workspace_bytes(limits_, device.stream()), 1);
  TERN_ASSIGN_OR_RETURN(cache_, CacheMemory::reserve(rank.model->kv_specs(shared.block_size), shared.blocks, device));
  TERN_RETURN_IF_ERROR(cache_->grow(0));
  TERN_ASSIGN_OR_RETURN(workspace_, device.allocate(workspace));
  TERN_ASSIGN_OR_RETURN(part_memory_, device.allocate(static_cast<size_t>(most * columns) * sizeof(float)));
  TERN_ASSIGN_OR_RETURN(rows_memory_, device.allocate(static_cast<size_t>(most * outputs) * sizeof(float)));
  pass_.model = rank.model, pass_.cache = &cache_->cache();
  pass_.workspace = workspace_.data(), pass_.workspace_bytes = workspace_.bytes();
  pass_.logits = tensor2(rows_memory_.data(), DType::kF32, most, outputs);
  pass_.communicator = communicator;
  pass_.part = tensor2(part_memory_.data(), DType::kF32, most, columns);
  pass_.first_column = first;
  if (shared.lockstep != nullptr) {
    pass_.experts = shared.lockstep->experts(shared.engine, communicator.rank);
    engines_ = shared.lockstep->engines();
  }
  return {};
}

Status RankPart::forward(const Step& step, const Step* previous, int graph, VisionStage* vision) {
  const device::Stream stream = device_->stream();
  TERN_RETURN_IF_ERROR(device_->inject(std::exchange(fault_, device::Fault::kNone), stream));
  Step& mine = of(step);
  mine.follow(step);
  // The tower runs beside the steps before; this one reads what it makes.
  if (!step.vision.items.empty()) TERN_RETURN_IF_ERROR(vision->wait(stream));
  if (graph >= 0) {
    if (step.sampled) deal_.take(step.sampling, step.owners(), mine.sampling);
    return graphs_->launch(mine, graph, stream);
  }
  TERN_RETURN_IF_ERROR(mine.upload(*device_, stream));
  if (previous != nullptr && step.batch.tokens > 0) {
    TERN_RETURN_IF_ERROR(
        ops::resolve_ids({mine.batch.token_ids, mine.batch.token_source, of(*previous).sampling.device_ids()}, stream));
  }
  return pass_.run(mine.batch, mine.device_owners(), step.engine_tokens(engines_), stream);
}

Status RankPart::sample(const Step& step, StepGraphs::Sampling graph) {
  const device::Stream stream = device_->stream();
  Step& mine = of(step);
  if (step.sampled) return end(step).record(stream);
  if (pools()) {  // every rank has the same rows
    if (pass_.communicator.rank == 0) {
      TERN_RETURN_IF_ERROR(step.download_pooled(pass_.logits, *device_, stream));
    }
    return end(step).record(stream);
  }
  sample::SamplingBatch& batch = mine.sampling;
  deal_.take(step.sampling, step.owners(), batch);
  if (graph.found()) batch.pad(graphs_->shapes().samples()[static_cast<size_t>(graph.count)]);
  sample::CopyList list;
  if (batch.held_back()) {
    batch.upload_late(list), batch.upload_requests(list);
  } else {
    batch.upload(list);
  }
  TERN_RETURN_IF_ERROR(list.run(*device_, stream));
  if (graph.found()) {
    TERN_RETURN_IF_ERROR(graphs_->launch(mine, graph, stream));
    return end(step).record(stream);
  }
  const int64_t rows = step.batch.logit_rows;
  TERN_RETURN_IF_ERROR(sampler_->draw(batch, pass_.logits.first(rows), *device_, stream));
  TERN_RETURN_IF_ERROR(
      ops::all_gather({pass_.communicator, mine.device_owners(), batch.device_ids().first(rows)}, stream));
  TERN_RETURN_IF_ERROR(sampler_->finish(batch, *device_, stream));
  return end(step).record(stream);
}

Status RankPart::ended(const Step& step) const {
  Status status = end(step).synchronize();  // passed: this only asks how it went
  return status.ok() ? device_->status() : status;
}

Status RankPart::make_graphs(const GraphConfig& config, int max_context_len) {
  const StepGraphs::Parts parts{pass_,   device_,        sampler_.get(), {mine_[0].get(), mine_[1].get()},
                                limits_, max_context_len};
  TERN_ASSIGN_OR_RETURN(graphs_, StepGraphs::make(config, parts));
  return {};
}

Status RankPart::capture_forward(const StepShape& shape) {
  mine_[0]->follow(*whole_[0]);
  return graphs_->capture_forward(shape);
}

}  // namespace tern::engine
