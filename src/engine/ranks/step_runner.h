// What a step gives to its device, or to those of all ranks. Of the rank's thread; at start, before there is one, of
// the thread that starts.
#pragma once

#include <memory>

#include "device/device.h"
#include "engine/ranks/lockstep.h"
#include "engine/ranks/rank_group.h"
#include "engine/step/forward_pass.h"
#include "engine/step/step.h"
#include "engine/step/step_graphs.h"
#include "engine/step/vision_stage.h"
#include "engine/step_trace.h"
#include "sample/sampler.h"

namespace tern::engine {

class StepRunner {
 public:
  struct Parts {
    device::Device* device = nullptr;  // of rank 0
    VisionStage* vision = nullptr;     // null: no tower
    StepTrace* trace = nullptr;        // null: times of steps are not recorded
    std::unique_ptr<RankGroup> group;  // null: one rank, which has the following
    ForwardPass pass;
    sample::Sampler* sampler = nullptr;
    std::unique_ptr<StepGraphs> graphs;  // null: every step is launched piece by piece
    device::Buffer workspace;
    Lockstep* lockstep = nullptr;  // null: the engine's steps are its own
    int engine = 0;                // its number there
  };
  explicit StepRunner(Parts parts) : parts_(std::move(parts)) {}

  // Both queue work and wait for nothing but, where there are several ranks of a CPU, for the others. `previous`: the
  // step launched before, whose sampled ids this one reads; null for the first.
  Status forward(Step& step, const Step* previous);
  Status sample(Step& step);
  // Of a step given as a whole: whether further ranks are done with it; once they and rank 0's device are, how it went
  // there, and their results.
  bool done(const Step& step) { return parts_.group == nullptr || parts_.group->done(step); }
  Status finish(Step& step) { return parts_.group == nullptr ? Status() : parts_.group->finish(step); }
  // What comes next on that rank's device meets the fault.
  Status inject(int rank, device::Fault fault);
  // A step has failed: engines that wait for its ranks are let go.
  void let_go() {
    if (parts_.lockstep != nullptr) parts_.lockstep->fail();
  }
  Status synchronize();
  // Replays graphs from now on; null: none.
  void use(std::unique_ptr<StepGraphs> graphs) { parts_.graphs = std::move(graphs); }
  const Parts& parts() const { return parts_; }
  device::Device& device() const { return *parts_.device; }

 private:
  std::span<const int32_t> engine_tokens(const Step& step) const {
    return step.engine_tokens(parts_.lockstep == nullptr ? 0 : parts_.lockstep->engines());
  }

  Parts parts_;
};

}  // namespace tern::engine
