// Drawing one token from one row of logits, and the log-probabilities around it. Exact integer arithmetic decides:
// weights of 30 bits (sample_kernels.h), 64-bit sums, so any device and any order of work gives the same token.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/sample/sample_kernels.h"

namespace tern::kernels {

// Scratch of one thread for rows of up to `capacity` values.
struct RowSpace {
  int64_t capacity = 0;
  float* values = nullptr;
  int32_t* indices = nullptr;
  uint32_t* offsets = nullptr;  // distance of the ordered bits from the top: 0 for the largest logit
  uint32_t* weights = nullptr;
  uint32_t* list = nullptr;
  uint32_t* picked = nullptr;  // weights of a short list, while `weights` holds the row's
  uint64_t* chunk_mass = nullptr;
  uint64_t* bins = nullptr;

  static size_t bytes(int64_t capacity);
  static RowSpace make(void* memory, int64_t capacity);
};

// Bits that order like the floats; -0 and +0 are one value.
inline uint32_t ordered_bits(float x) {
  const auto u = std::bit_cast<uint32_t>(x + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

inline float from_ordered(uint32_t u) { return std::bit_cast<float>((u & 0x80000000u) != 0 ? u ^ 0x80000000u : ~u); }

enum class SampleRowStatus : int32_t { kOk = 0, kNan = 1, kEmpty = 2 };  // kEmpty: every logit is -inf

struct SampleRowArgs {
  const float* x = nullptr;  // [n]
  int64_t n = 0;
  float scale = 1.0f;  // 1 / temperature
  float top_p = 1.0f;  // below 1e-5: the largest logit
  float min_p = 0.0f;
  int32_t top_k = 0;  // < 1: off
  bool greedy = false;
  bool want_prob = false;
  uint64_t random = 0;  // 64 uniform bits
};

struct SampleRowResult {
  int32_t id = 0;  // valid in any status, so that a step that runs ahead reads an existing embedding
  SampleRowStatus status = SampleRowStatus::kOk;
  float prob = 0.0f;  // of softmax(x * scale), with want_prob
};

// Order: min-p, top-k (ties by lowest id), top-p over what top-k left; a token stays iff the mass strictly above it is
// below top_p (fastdeploy.md 5.4). The draw walks the kept tokens by id.
SampleRowResult sample_row(const SampleKernels& kernels, const SampleRowArgs& args, const RowSpace& space);

// The ids that sample_row() can draw, as bits of [(n + 31) / 32] words.
void kept_ids(const SampleKernels& kernels, const SampleRowArgs& args, const RowSpace& space, uint32_t* bits);
// Of softmax(x * scale), in nats. NaN: no distribution.
float entropy(const SampleKernels& kernels, const float* x, int64_t n, float scale);

struct Candidate {
  int32_t id = 0;
  float logprob = 0.0f;
  int32_t rank = 0;
};

struct LogprobArgs {
  const float* x = nullptr;  // [n]
  int64_t n = 0;
  float scale = 1.0f;
  float top_p = 1.0f;   // < 1: renormalise over the nucleus; what lies outside has -inf
  bool logits = false;  // values are x * scale, not normalised
  int32_t target = 0;   // the token whose value comes first
  int32_t top = 0;      // how many of the largest follow
};

// Fills out[0 .. top]: the target with its rank (1 + how many are larger), then the largest, ties by lowest id. NaN
// rows give NaN.
void logprobs(const SampleKernels& kernels, const LogprobArgs& args, const RowSpace& space, Candidate* out);

// The largest offset T of the list with (mass of offsets below T) < limit, limit >= 1. Entries without weight do not
// count; null weights are 1 each. `list` has room for n, `bins` for kSelectBins.
inline constexpr int kSelectBins = 2048;
uint32_t select_offset(const uint32_t* offsets, const uint32_t* weights, int64_t n, uint64_t limit, uint32_t* list,
                       uint64_t* bins);

}  // namespace tern::kernels
