// What a token was drawn from, for whoever wants to know: the entropy of its row, and the ids that truncation left
// (fastdeploy.md 5.5).
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::ops {

// As the slot's parameters of sample(), by value: rows are asked for by the host.
struct DrawFactsRow {
  int32_t logit_row = 0;
  int32_t top_k = 0;  // < 1: off
  int32_t greedy = 0;
  float scale = 1.0f;  // 1 / temperature
  float top_p = 1.0f, min_p = 0.0f;
  int32_t out = 0;  // the row of `entropy` and `kept`
};

struct DrawFactsParams {
  TensorView logits;                   // [L, V] f32, as sample() read them
  const DrawFactsRow* rows = nullptr;  // [count], device memory
  int count = 0;
  TensorView entropy;  // empty, or [R] f32: of softmax(logits * scale), in nats; NaN for a row without a distribution
  // Empty, or [R, (V + 31) / 32] int32: a bit for each id that sample() can draw. Those that weigh less than 2^-31 of
  // the most likely one are not among them: it cannot.
  TensorView kept;
  void* workspace = nullptr;  // sample_workspace() bytes
};
Status draw_facts(const DrawFactsParams& params, device::Stream stream);

}  // namespace tern::ops
