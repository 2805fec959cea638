// A float32 value as the sum of three bfloat16 values, and who else multiplies by such weights.
#pragma once

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/kernel_util.cuh"

namespace tern::cuda {

struct RouteArgs;

struct Split {
  uint32_t high, middle, low;  // two values each
};

// A float's upper half: itself with eight digits, the others cut off.
__device__ __forceinline__ float cut(float v) { return __uint_as_float(__float_as_uint(v) & 0xffff0000u); }
__device__ __forceinline__ uint32_t upper_halves(float x, float y) {
  return __float_as_uint(x) >> 16 | (__float_as_uint(y) & 0xffff0000u);
}

// Three times eight digits are all of a float. Cut off, not rounded: that takes no conversions, of which a
// multiprocessor does few at a time.
__device__ __forceinline__ Split split(float2 v) {
  const float rest_x = v.x - cut(v.x), rest_y = v.y - cut(v.y);
  return {upper_halves(v.x, v.y), upper_halves(rest_x, rest_y),
          upper_halves(rest_x - cut(rest_x), rest_y - cut(rest_y))};
}

inline constexpr int kClusterRows = 128;  // up to which blocks of gemm_mixed() that share the k of a tile pay

// More rows with more than a few rows of the weight: sums of their own, not for deterministic mode.
bool router_fits(const Gemm& g, device::Stream stream);
Status gemm_router(const Gemm& g, const void* weight, device::Stream stream);
// The same with the choice of experts by it, which route_fits_lanes() must be able to make; g.out gets the scores, too.
bool router_chooses(const Gemm& g, device::Stream stream);
Status gemm_router_choice(const Gemm& g, const void* weight, const RouteArgs& route, device::Stream stream);

}  // namespace tern::cuda
