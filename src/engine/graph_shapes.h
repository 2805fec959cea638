// Which sizes of steps are captured as graphs, and which one a step takes.
#pragma once

#include <vector>

#include "base/error.h"
#include "model/batch.h"

namespace tern::engine {

// --graph-optimization-config (fastdeploy.md 8.1).
struct GraphConfig {
  bool use = true;                 // use_cudagraph
  bool only_prefill = false;       // cudagraph_only_prefill: none for steps that only decode
  std::vector<int> sizes;          // cudagraph_capture_sizes: sequences of a decode step; empty: the automatic list
  std::vector<int> prefill_sizes;  // cudagraph_capture_sizes_prefill: tokens of a mixed step; empty: automatic
  int max_prefill = 512;           // max_capture_shape_prefill: tokens of the largest mixed step; 0: none
};

// Sizes that a step is padded to. A decode step has one token per row; a mixed one any number per row.
struct StepShape {
  int tokens = 0;
  int rows = 0;  // of sequences; logit rows likewise
  bool decode = false;
};

// The automatic list of fastdeploy.md 8.1, cropped to `most` sequences; `most` itself ends it.
std::vector<int> automatic_sizes(int most);

class GraphShapes {
 public:
  GraphShapes() = default;  // none
  // Sizes beyond what a batch holds are left out. Errors (kInvalidArgument): a size below 1, or more than a thousand.
  static Expected<GraphShapes> make(const GraphConfig& config, const model::BatchLimits& limits);

  // The place in shapes() of the smallest one that holds the batch; -1: none, the step runs as it is.
  int find(const model::Batch& batch) const;
  const std::vector<StepShape>& shapes() const { return shapes_; }
  int most_tokens() const;
  // Numbers of sampled rows, ascending; the smallest one that holds `count`, by place, or -1.
  const std::vector<int>& samples() const { return samples_; }
  int find_samples(int count) const;

 private:
  std::vector<StepShape> shapes_;  // decode by rows, then mixed by tokens and rows
  std::vector<int> samples_;
};

}  // namespace tern::engine
