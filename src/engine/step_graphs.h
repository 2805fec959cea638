// Steps captured once as graphs and replayed: forward for decode and small mixed steps, sampling by number of rows.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "engine/graph_shapes.h"
#include "engine/step.h"
#include "model/model.h"
#include "sample/sampler.h"

namespace tern::engine {

// Of the rank's thread. A graph reads fixed addresses, so both steps must share their device side (Step::create). What
// a row says does not depend on how far the step was padded where the model's bits do not depend on the number of rows
// (deterministic mode); otherwise as far as another number of neighbours would change them.
class StepGraphs {
 public:
  struct Parts {
    const model::Model* model = nullptr;
    device::Device* device = nullptr;
    const model::KvCache* cache = nullptr;  // addresses are final; block 0 of every group has memory
    sample::Sampler* sampler = nullptr;
    Step* step = nullptr;  // either of the two; what it holds is lost
    char* workspace = nullptr;
    size_t workspace_bytes = 0;
    TensorView logits;  // [max_logit_rows, vocabulary] f32
    model::BatchLimits limits;
    int max_context_len = 0;
  };
  // Runs every shape once, over the null block, and captures it; waits until the device is idle. Null when the
  // configuration or the device has no graphs.
  static Expected<std::unique_ptr<StepGraphs>> capture(const GraphConfig& config, const Parts& parts);

  // Uploads the step and replays its graph: everything from ids of the step before to the logits. Block moves come
  // before. False: no graph holds the step and nothing was queued; then upload and run it.
  Expected<bool> forward(Step& step, device::Stream stream);
  // Slot updates, masks, sampling, results to the host. False likewise; log-probabilities have no graph.
  Expected<bool> sample(Step& step, device::Stream stream);

  const GraphShapes& shapes() const { return shapes_; }

 private:
  using GraphList = std::vector<std::unique_ptr<device::Graph>>;
  // Processors of a sampling graph. More than the rows ask for changes nothing.
  struct Draws {
    uint32_t processors = 0;
    GraphList by_count;  // as GraphShapes::samples()
  };
  explicit StepGraphs(const Parts& parts) : p_(parts) {}
  Status capture_forward();
  Status capture_draws();
  Status run_forward(const StepShape& shape, device::Stream stream);
  // Runs `work` once, then captures it.
  template <class Work>
  Expected<std::unique_ptr<device::Graph>> record(Work&& work);

  Parts p_;
  GraphShapes shapes_;
  GraphList forward_;  // as GraphShapes::shapes()
  std::vector<Draws> draws_;
};

}  // namespace tern::engine
