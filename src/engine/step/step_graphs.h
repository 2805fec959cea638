// Steps captured once as graphs and replayed: forward for decode and small mixed steps, sampling by number of rows.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "engine/graph_shapes.h"
#include "engine/step/forward_pass.h"
#include "engine/step/step.h"
#include "sample/sampler.h"

namespace tern::engine {

// Of the rank's thread. A graph reads fixed addresses, so both steps must share their device side (Step::create). It
// copies the inputs of the step whose turn it is, and the results back, after which it is the other's turn: a word of
// the device's memory says whose. Steps that take no graph leave that word, and the next graph finds it set. What a row
// says does not depend on how far the step was padded where the model's bits do not depend on the number of rows
// (deterministic mode); otherwise as far as another number of neighbours would change them.
class StepGraphs {
 public:
  struct Parts {
    ForwardPass pass;  // the cache's addresses are final; block 0 of every group has memory
    device::Device* device = nullptr;
    sample::Sampler* sampler = nullptr;
    std::array<Step*, 2> steps{};  // what the first one holds is lost
    model::BatchLimits limits;
    int max_context_len = 0;
  };
  // A graph of sampling, by place; one rank finds it for all.
  struct Sampling {
    int set = -1, count = -1;
    bool found() const { return set >= 0; }
  };

  // Runs every shape once, over the null block, and captures it; waits until the device is idle. Null when the
  // configuration or the device has no graphs.
  static Expected<std::unique_ptr<StepGraphs>> capture(const GraphConfig& config, const Parts& parts);
  // The same in parts, which all ranks of a group do at once: make() captures nothing yet, then come forward passes,
  // in their order, and sampling. The first step is idle, of that shape, before each.
  static Expected<std::unique_ptr<StepGraphs>> make(const GraphConfig& config, const Parts& parts);
  Status capture_forward(const StepShape& shape);
  Status capture_sampling(uint32_t processors, int count);
  std::vector<uint32_t> processor_sets() const;
  void log(int64_t begin_ns, size_t bytes) const;

  // Host side: pads the step to the graph that holds it; -1: none does.
  int fit(Step& step) const;
  // Replays that graph: everything from the step's inputs to the logits. Block moves come before.
  Status launch(Step& step, int graph, device::Stream stream);
  // Slot updates, masks, sampling, results to the host, of the rows that the graph of the forward pass has not sampled:
  // that of a step that only decodes samples all rows but late ones (SamplingBatch::late). None is found likewise;
  // log-probabilities have no graph.
  Sampling fit(const sample::SamplingBatch& batch) const;
  Status launch(Step& step, Sampling graph, device::Stream stream);

  // Both, of one rank. False: no graph holds the step and nothing was queued; then upload and run it.
  Expected<bool> forward(Step& step, device::Stream stream);
  Expected<bool> sample(Step& step, device::Stream stream);

  const GraphShapes& shapes() const { return shapes_; }

 private:
  using GraphList = std::vector<std::unique_ptr<device::Graph>>;
  // Processors of a sampling graph. More than the rows ask for changes nothing.
  struct SamplingGraphs {
    uint32_t processors = 0;
    GraphList by_count;  // as GraphShapes::samples()
  };
  explicit StepGraphs(const Parts& parts) : p_(parts) {}
  Status capture_all();
  Status run_forward(const StepShape& shape, device::Stream stream);
  Status run_sampling(int count, uint32_t processors, device::Stream stream);
  // Rows to sample that a forward graph copies.
  int samples_of(const StepShape& shape) const;
  // Makes it the turn of that step unless it is, after what the stream has been given.
  Status give_turn(int set, device::Stream stream);
  int set_of(const Step& step) const { return &step == p_.steps[1] ? 1 : 0; }
  // Runs `work` once, then captures it.
  template <class Work>
  Expected<std::unique_ptr<device::Graph>> record(Work&& work);

  Parts p_;
  GraphShapes shapes_;
  device::Buffer turn_memory_, sets_;  // the word; pinned: 0 and 1
  int turn_ = 0;                       // what the word holds when the device has come this far
  GraphList forward_;                  // as GraphShapes::shapes()
  std::vector<SamplingGraphs> sampling_graphs_;
};

// What the configuration says about a failed capture.
Error capture_error(const Error& why);

}  // namespace tern::engine
