// A head of 64 * kEach values between the QKV projection and attention, in the registers of one warp: lane l has kEach
// neighbouring pairs, values of both halves or next to each other. Operations are spelled out, so that every kernel
// that uses this leaves the same bits.
#pragma once

#include "cuda/ptx/kernel_util.cuh"

namespace tern::cuda {

template <int kEach>
struct QkvHead {
  using Values = float[2][kEach];
  Values v;

  // Where value `which` of the lane's pair j stands in the head.
  static __device__ __forceinline__ int place(bool interleaved, int which, int j) {
    const int pair = static_cast<int>(threadIdx.x & 31) * kEach + j;
    return interleaved ? 2 * pair + which : pair + which * 32 * kEach;
  }
  template <class T>
  static __device__ __forceinline__ void read(const T* from, bool interleaved, Values& to) {
#pragma unroll
    for (int i = 0; i < 2 * kEach; ++i)
      to[i / kEach][i % kEach] = as_float(from[place(interleaved, i / kEach, i % kEach)]);
  }
  // The weight of a norm.
  static __device__ __forceinline__ void read(const void* from, bool bf16, bool interleaved, Values& to) {
    if (bf16) {
      read(static_cast<const bf*>(from), interleaved, to);
    } else {
      read(static_cast<const float*>(from), interleaved, to);
    }
  }
  // RMS norm with the roundings of type T.
  template <class T>
  __device__ __forceinline__ void normalise(const Values& weight, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kEach; ++j) sum = __fmaf_rn(v[0][j], v[0][j], __fmaf_rn(v[1][j], v[1][j], sum));
    const float r = 1.0f / sqrtf(__fadd_rn(warp_sum(sum) / static_cast<float>(64 * kEach), eps));
#pragma unroll
    for (int i = 0; i < 2 * kEach; ++i) {
      float& x = v[i / kEach][i % kEach];
      x = rounded<T>(__fmul_rn(rounded<T>(__fmul_rn(x, r)), weight[i / kEach][i % kEach]));
    }
  }
  __device__ __forceinline__ void turn(const float (&c)[kEach], const float (&s)[kEach]) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float x = v[0][j], y = v[1][j];
      v[0][j] = __fmaf_rn(x, c[j], -__fmul_rn(y, s[j]));
      v[1][j] = __fmaf_rn(y, c[j], __fmul_rn(x, s[j]));
    }
  }
  template <class C>
  __device__ __forceinline__ void write(C* to, bool interleaved) const {
#pragma unroll
    for (int i = 0; i < 2 * kEach; ++i)
      to[place(interleaved, i / kEach, i % kEach)] = from_float<C>(v[i / kEach][i % kEach]);
  }
};

}  // namespace tern::cuda
