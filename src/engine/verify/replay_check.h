// Graphs against the same steps run as they are: bits of logits and sampled ids over many replays (tern verify
// --replays).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "device/dtype.h"
#include "model/quantization.h"

namespace tern::engine {

// What every step of the check gave when it ran padded and without a graph, and how replays compare.
struct ReplayReport {
  int steps = 0, shapes = 0;  // different steps; graphs of forward passes
  uint64_t replays = 0;
  uint64_t different = 0;                  // replays with another bit in a real row, or another id
  int unpadded = 0;                        // steps whose rows have the same bits without padding
  double seconds = 0;                      // of capturing
  std::vector<std::vector<float>> logits;  // by step
};

// Loads the model in `folder` and replays random ones of its steps: decode and mixed, with pictures' rows, over
// prefixes in the cache, two in flight. The device must have graphs (kUnsupported).
Expected<ReplayReport> check_replays(const std::string& folder, DType activation,
                                     const model::Quantization& quantization, device::Device& device, uint64_t replays);

}  // namespace tern::engine
