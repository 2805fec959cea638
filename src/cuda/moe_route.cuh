// The choice of experts of one token by one warp, all in registers.
#pragma once

#include "cuda/kernel_util.cuh"
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
    top = warp_max(top);
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
  float mine = 0.0f, sum = 0.0f;  // mine: the weight of rank `lane`
  int expert = 0;
  for (int j = 0; j < a.top_k; ++j) {
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
    sum += score;
    if (lane == j) mine = score, expert = static_cast<int>(chosen);
  }
  if (a.renorm_min > 0.0f && !(sum > a.renorm_min)) sum = a.renorm_min;
  const float divisor = a.renormalize ? sum + a.renorm_eps : 1.0f;
  return {expert, mine / divisor * a.scale};
}

}  // namespace tern::cuda
