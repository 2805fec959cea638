// What a step gives to its device. Of the rank's thread; at start, before there is one, of the thread that starts.
#pragma once

#include <memory>

#include "device/device.h"
#include "engine/step/rank_group.h"
#include "engine/step/step.h"
#include "engine/step/step_graphs.h"
#include "engine/step/vision_stage.h"
#include "engine/step_trace.h"
#include "model/model.h"
#include "sample/sampler.h"

namespace tern::engine {

class StepRunner {
 public:
  struct Parts {
    const model::Model* model = nullptr;
    device::Device* device = nullptr;
    const model::KvCache* cache = nullptr;
    sample::Sampler* sampler = nullptr;  // of one rank
    VisionStage* vision = nullptr;       // null: no tower
    std::unique_ptr<RankGroup> group;    // null: one rank
    std::unique_ptr<StepGraphs> graphs;  // null: every step is launched piece by piece
    device::Buffer workspace;            // likewise
    TensorView logits;                   // [max_logit_rows, vocabulary] f32; likewise
    StepTrace* trace = nullptr;          // null: times of steps are not recorded
  };
  explicit StepRunner(Parts parts) : parts_(std::move(parts)) {}

  // Both queue work and wait for nothing but, where there are several ranks of a CPU, for the others. `previous`: the
  // step launched before, whose sampled ids this one reads; null for the first.
  Status forward(Step& step, const Step* previous);
  Status sample(Step& step);
  // What comes next on that rank's device meets the fault.
  Status inject(int rank, device::Fault fault);
  // Replays graphs from now on; null: none.
  void use(std::unique_ptr<StepGraphs> graphs) { parts_.graphs = std::move(graphs); }
  const Parts& parts() const { return parts_; }
  device::Device& device() const { return *parts_.device; }

 private:
  Parts parts_;
};

}  // namespace tern::engine
