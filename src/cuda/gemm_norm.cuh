// A norm done by the products before and behind it (joint.h): what their kernels share. As a product is linear in its
// rows, the scale of a row can come last. The order of all sums is fixed.
#pragma once

#include "cuda/gemm_args.h"
#include "cuda/kernel_util.cuh"

namespace tern::cuda {

// Brings the weight of a column into the second-level cache; weights may be read before the launch before has ended.
__device__ __forceinline__ void bring_norm_weight(const NormAfter& a, int64_t col) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(static_cast<const char*>(a.weight) + col * (a.weight_bf16 ? 2 : 4)));
#endif
}

__device__ __forceinline__ float norm_weight(const NormAfter& a, int64_t col) {
  return a.weight_bf16 ? as_float(static_cast<const bf*>(a.weight)[col]) : static_cast<const float*>(a.weight)[col];
}

// Leaves value [token][col], whose sum is v; gives its square.
__device__ __forceinline__ float leave_normed(const NormAfter& a, int64_t token, int64_t col, float v, float residual,
                                              float weight) {
  v += residual;
  a.residual[token * a.residual_row + col] = v;
  static_cast<bf*>(a.x)[token * a.x_row + col] = from_float<bf>(v * weight);
  return v * v;
}

__device__ __forceinline__ float norm_scale(const NormBefore& b, float squares, int64_t width) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + b.eps);
}

}  // namespace tern::cuda
