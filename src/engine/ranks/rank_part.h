// One of several ranks: its device side of the steps, its part of the model, what it gives its device. Of the rank's
// thread, except for what says otherwise.
#pragma once

#include <array>
#include <memory>

#include "device/communicator.h"
#include "device/device.h"
#include "engine/block_numbers.h"
#include "engine/engine.h"
#include "engine/ranks/lockstep.h"
#include "engine/step/forward_pass.h"
#include "engine/step/step.h"
#include "engine/step/step_graphs.h"
#include "engine/step/vision_stage.h"
#include "sample/sampler.h"
#include "sample/sampling_deal.h"

namespace tern::engine {

class RankPart {
 public:
  // What all ranks share.
  struct Shared {
    std::array<Step*, 2> steps{};  // the engine's, filled by it and padded by rank 0's thread
    Step::Parts sizes;             // of them
    int block_size = 0;
    int64_t blocks = 0;            // addresses of each cache
    Lockstep* lockstep = nullptr;  // of engines that share experts, and the number of this one; null: there are none
    int engine = 0;
  };
  static Expected<std::unique_ptr<RankPart>> create(const RankModel& rank, const device::Communicator& communicator,
                                                    const Shared& shared);

  // A step of the engine's, which stays as it is until it is done. `previous`: the step launched before, whose sampled
  // ids this one reads; null for the first. `graph`: that it was padded for, or -1. Runs the model, then brings the
  // logits of this rank's rows together.
  Status forward(const Step& step, const Step* previous, int graph, VisionStage* vision);
  // Draws its rows; every rank then has all ids.
  Status sample(const Step& step, StepGraphs::Sampling graph);

  // Any thread, of a step that was given as a whole: whether it is done, or has failed; how it went.
  bool done(const Step& step) const { return end(step).done(); }
  Status ended(const Step& step) const;
  // Rank 0's thread. The results of a step that is done to where the engine reads them.
  void give(Step& step) const {
    if (!pools()) deal_.give(mine_[index(step)]->sampling, step.owners(), step.sampling);
  }

  // At the start.
  Status make_graphs(const GraphConfig& config, int max_context_len);
  Status capture_forward(const StepShape& shape);
  Status capture_sampling(uint32_t processors, int count) { return graphs_->capture_sampling(processors, count); }
  Status synchronize() { return device_->synchronize(device_->stream()); }

  const StepGraphs* graphs() const { return graphs_.get(); }  // null: none
  Step& idle_step() const { return *whole_[0]; }              // the engine's, while graphs are captured
  device::Device& device() const { return *device_; }
  CacheMemory& cache() { return *cache_; }
  // What it is given next meets this fault.
  void inject(device::Fault fault) { fault_ = fault; }

 private:
  RankPart(const Shared& shared, const device::Communicator& rank)
      : whole_(shared.steps), limits_(shared.sizes.limits), deal_(shared.sizes.sampling, rank) {}
  Status make_pass(const RankModel& rank, const device::Communicator& communicator, const Shared& shared);
  bool pools() const { return pass_.model->info().pooled > 0; }
  size_t index(const Step& step) const { return &step == whole_[1] ? 1 : 0; }
  Step& of(const Step& step) const { return *mine_[index(step)]; }
  device::Event& end(const Step& step) const { return *ends_[index(step)]; }

  std::array<Step*, 2> whole_;
  model::BatchLimits limits_;
  sample::SamplingDeal deal_;
  device::Device* device_ = nullptr;
  ForwardPass pass_;
  int engines_ = 0;  // that share experts
  device::Buffer workspace_, part_memory_, rows_memory_;
  std::unique_ptr<CacheMemory> cache_;
  std::array<std::unique_ptr<Step>, 2> mine_;
  std::array<std::unique_ptr<device::Event>, 2> ends_;
  std::unique_ptr<sample::Sampler> sampler_;
  std::unique_ptr<StepGraphs> graphs_;
  device::Fault fault_ = device::Fault::kNone;
};

}  // namespace tern::engine
