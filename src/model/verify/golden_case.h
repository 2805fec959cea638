// A reference case: a small checkpoint and what another implementation computes from it (tools/golden/make_golden.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace tern::model {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
  double max_abs() const;
};

struct GoldenPrompt {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;  // arg-max continuation
  std::vector<double> margins;  // best minus second-best logit at each step
  // Picture cases: files beside golden.json, in the order in which they appear; frames are those of one video.
  std::vector<std::string> images, frames;
  int rope_delta = 0;
};

struct GoldenCase {
  std::string folder, kind;  // kind: "text" or "vision"
  std::vector<GoldenPrompt> prompts;
  std::vector<int32_t> banned;  // ids that greedy never takes
  json::Object reference_options, processor;
  std::map<std::string, GoldenTensor, std::less<>> tensors;  // "short.hidden.0", "long.logits", "long.logprob_sum", ...
  std::map<std::string, std::vector<int64_t>, std::less<>> integers;  // "one.position_ids", ...
  const GoldenTensor* find(const std::string& name) const;
};

// Reads golden.json and golden.safetensors of a folder. Hostile input: everything is checked.
Expected<GoldenCase> read_golden_case(const std::string& folder);

}  // namespace tern::model
