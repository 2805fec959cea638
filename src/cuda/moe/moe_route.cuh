// The choice of experts of one token by one warp, all in registers.
#pragma once

#include "cuda/ptx/kernel_util.cuh"
#include "ops/moe.h"

namespace tern::cuda {

struct RouteArgs {
  Rows<const float> logits;
  const float* bias;
  bool sigmoid, renormalize, forced;
  int experts, top_k, n_group, topk_group, split;
  float renorm_eps, renorm_min, scale;
  const int32_t* token_ids;
  ops::TokenSet second;
  Rows<int32_t> ids;
  Rows<float> weights;

  __device__ bool in_second(int64_t t) const {
    const int32_t id = token_ids[t];
    bool found = id >= second.from;
    for (int i = 0; i < second.listed; ++i) found = found || second.ids[i] == id;
    return found;
  }
};

// Checks the parameters.
Expected<RouteArgs> route_args(const ops::MoeRouteParams& p);
// Whether route_row() can do it: one bank, one group, up to 256 experts.
bool route_fits_lanes(const ops::MoeRouteParams& p);

// One of an ascending order of floats in which NaN is lowest; 0 is below all of them.
__device__ __forceinline__ uint32_t choice_key(float v) {
  if (v != v) return 1;
  const uint32_t u = __float_as_uint(__fadd_rn(v, 0.0f));
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
// The float of a key; not of NaN.
__device__ __forceinline__ float of_choice_key(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

// A lane's part of what is added to scores for choosing: experts lane + 32 i.
template <int kEach>
struct LaneBias {
  float v[kEach];
  __device__ __forceinline__ explicit LaneBias(const RouteArgs& a) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      v[i] = a.bias != nullptr && lane + 32 * i < a.experts ? a.bias[lane + 32 * i] : 0.0f;
    }
  }
};

struct Ranked {
  int expert;
  float weight;
};

struct Chosen {
  int expert = 0;
  float score = 0.0f, sum = 0.0f;  // sum: of all ranks, in their order
};

// Lane j gets the choice of rank j: the largest key, the lowest expert among equals.
template <int kEach>
__device__ __forceinline__ Chosen choose_among_equals(uint32_t (&key)[kEach], const float (&x)[kEach], int top_k) {
  const int lane = threadIdx.x & 31;
  Chosen mine;
  for (int j = 0; j < top_k; ++j) {
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) best = max(best, key[i]);
    best = __reduce_max_sync(0xffffffffu, best);
    uint32_t place = 0xffffffffu;
    float score = 0.0f;
#pragma unroll
    for (int i = kEach - 1; i >= 0; --i) {
      if (key[i] == best) place = static_cast<uint32_t>(lane + 32 * i), score = x[i];
    }
    const uint32_t chosen = ~__reduce_max_sync(0xffffffffu, ~place);  // the lowest
    score = __shfl_sync(0xffffffffu, score, static_cast<int>(chosen % 32));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (static_cast<uint32_t>(lane + 32 * i) == chosen) key[i] = 0;
    }
    mine.sum += score;
    if (lane == j) mine.score = score, mine.expert = static_cast<int>(chosen);
  }
  return mine;
}

// The same where no two lanes have equal keys, else `equal` is left other than zero: every lane has its experts in
// order, so that from one rank to the next there is one reduction to wait for.
template <int kEach>
__device__ __forceinline__ Chosen choose(const uint32_t (&keys)[kEach], const float (&scores)[kEach], int top_k,
                                         unsigned& equal) {
  const int lane = threadIdx.x & 31;
  uint32_t key[kEach];
  float x[kEach];
  int place[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) key[i] = keys[i], x[i] = scores[i], place[i] = lane + 32 * i;
#pragma unroll
  for (int round = 0; round < kEach; ++round) {
#pragma unroll
    for (int i = round % 2; i + 1 < kEach; i += 2) {
      const bool swap = key[i + 1] > key[i];
      const uint32_t k = key[i];
      const float s = x[i];
      const int p = place[i];
      key[i] = swap ? key[i + 1] : k, x[i] = swap ? x[i + 1] : s, place[i] = swap ? place[i + 1] : p;
      if (swap) key[i + 1] = k, x[i + 1] = s, place[i + 1] = p;
    }
  }
  Chosen mine;
  equal = 0;
  for (int j = 0; j < top_k; ++j) {
    const uint32_t best = __reduce_max_sync(0xffffffffu, key[0]);
    const bool here = key[0] == best;
    const unsigned who = __ballot_sync(0xffffffffu, here);
    const int from = __ffs(static_cast<int>(who)) - 1;
    equal |= who & (who - 1);
    const float score = __shfl_sync(0xffffffffu, x[0], from);
    const int expert = __shfl_sync(0xffffffffu, place[0], from);
    mine.sum += score;
    if (lane == j) mine.score = score, mine.expert = expert;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (here) {
        key[i] = i + 1 < kEach ? key[i + 1] : 0;
        if (i + 1 < kEach) x[i] = x[i + 1], place[i] = place[i + 1];
      }
    }
  }
  return mine;
}

// Lane j gets the choice of rank j, one of at most 32 kEach experts.
template <int kEach>
__device__ __forceinline__ Ranked route_row(const RouteArgs& a, const float* logits, const LaneBias<kEach>& bias) {
  const int lane = threadIdx.x & 31;
  float x[kEach], top = -INFINITY;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    x[i] = lane + 32 * i < a.experts ? logits[lane + 32 * i] : -INFINITY;
    top = fmaxf(top, x[i]);
  }
  if (a.sigmoid) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = 1.0f / (1.0f + expf(-x[i]));
  } else {
    top = of_choice_key(__reduce_max_sync(0xffffffffu, choice_key(top)));
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = expf(x[i] - top);
      if (lane + 32 * i < a.experts) sum += static_cast<double>(x[i]);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    const auto total = static_cast<float>(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] /= total;
  }
  uint32_t key[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) key[i] = lane + 32 * i < a.experts ? choice_key(x[i] + bias.v[i]) : 0;
  unsigned equal = 0;
  Chosen mine = choose(key, x, a.top_k, equal);
  if (equal != 0) mine = choose_among_equals(key, x, a.top_k);
  float sum = mine.sum;
  if (a.renorm_min > 0.0f && !(sum > a.renorm_min)) sum = a.renorm_min;
  const float divisor = a.renormalize ? sum + a.renorm_eps : 1.0f;
  return {mine.expert, mine.score / divisor * a.scale};
}

}  // namespace tern::cuda
