// From processed logits to tokens and their log-probabilities (fastdeploy.md 5.1, steps 10 to 13).
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"
#include "ops/logits.h"

namespace tern::ops {

enum SampleStatus : int32_t { kSampleOk = 0, kSampleNan = 1, kSampleEmpty = 2 };

// Temperature, min-p, top-k, top-p, draw. A token stays iff the mass strictly above it is below top_p; top_k = 1,
// top_p < 1e-5 and greedy take the largest logit, lowest id on ties. Random bits are Philox of (seed, position, draw),
// and all masses are integers: identical logits give the identical token on every device and in every batch. The tokens
// are marked in the slot's seen and counts arrays when it is penalised.
struct SampleParams {
  LogitsParams rows;
  TensorView ids;             // [L] int32, out: entry logit_row of each row; a valid id in any case
  TensorView status;          // [L] int32, out: SampleStatus
  TensorView probs;           // empty, or [L] f32, out: probability of the token under softmax(logits / temperature)
  void* workspace = nullptr;  // sample_workspace() bytes
  // Rows have not been through logit_penalties() yet: that is done first, in place. No two rows of one slot then.
  bool penalise = false;
};
Status sample(const SampleParams& params, device::Stream stream);
size_t sample_workspace(device::Stream stream, int64_t vocab);

// A token, its value, and its place among all (1: the most likely).
struct TokenScore {
  int32_t id = 0;
  float value = 0.0f;
  int32_t rank = 0;
};

struct LogprobRow {
  int32_t logit_row = 0;
  int32_t target = -1;  // -1: what was sampled at sampled_row
  int32_t sampled_row = 0;
  int32_t top = 0;     // the `top` most likely follow, ties by lowest id; at most V
  int32_t logits = 0;  // 1: values are logits, not log-probabilities
  float scale = 1.0f;  // applied to the logits first
  float top_p = 1.0f;  // < 1: renormalised over the nucleus, -inf outside
  int32_t out = 0;     // first of the 1 + top entries of this row
};

struct LogprobParams {
  TensorView logits;                 // [L', V] f32
  const LogprobRow* rows = nullptr;  // [count], device memory
  int count = 0;
  TensorView ids;  // [L] int32, of sample()
  TokenScore* out = nullptr;
  void* workspace = nullptr;  // sample_workspace() bytes
};
Status token_logprobs(const LogprobParams& params, device::Stream stream);

// to[i] = from[rows[i]] over float32 rows: keeps logits as they were before the processors (step 2).
struct CaptureParams {
  TensorView from;                // [L, V] f32
  const int32_t* rows = nullptr;  // [count], device memory
  int count = 0;
  TensorView to;  // [count, V] f32
};
Status capture_logits(const CaptureParams& params, device::Stream stream);

}  // namespace tern::ops
