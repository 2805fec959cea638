// Small device functions that every kernel file uses: element types, 8-element vectors, reductions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "device/tensor.h"

namespace tern::cuda {

using bf = __nv_bfloat16;

__device__ __forceinline__ float as_float(float v) { return v; }
__device__ __forceinline__ float as_float(bf v) { return __bfloat162float(v); }
template <class T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ bf from_float<bf>(float v) {
  return __float2bfloat16_rn(v);
}
template <class T>
__device__ __forceinline__ float rounded(float v) {
  return as_float(from_float<T>(v));
}

// A matrix whose rows may be strided; elements of type T.
template <class T>
struct Rows {
  T* data;
  int64_t stride;  // elements
  __device__ __forceinline__ T* row(int64_t i) const { return data + i * stride; }
};
template <class T>
Rows<T> rows_of(const TensorView& v) {
  return {static_cast<T*>(v.data), v.stride[0]};
}

// Runs f.operator()<T>() for the C++ type of an activation (float or bf16).
template <class F>
auto with_type(DType t, F&& f) {
  if (t == DType::kBF16) return f.template operator()<bf>();
  return f.template operator()<float>();
}

__device__ __forceinline__ float4 add_four(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
// Four values of bfloat16.
__device__ __forceinline__ float4 unpack_four(uint2 u) {
  return make_float4(__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xffff0000u), __uint_as_float(u.y << 16),
                     __uint_as_float(u.y & 0xffff0000u));
}

struct Vec8 {
  float v[8];
};
__device__ __forceinline__ Vec8 load8(const float* p) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ Vec8 widen8(const uint4& u) {
  const uint32_t w[4] = {u.x, u.y, u.z, u.w};
  Vec8 r;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    r.v[2 * i] = __uint_as_float(w[i] << 16);
    r.v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
  }
  return r;
}
__device__ __forceinline__ Vec8 load8(const bf* p) { return widen8(*reinterpret_cast<const uint4*>(p)); }
__device__ __forceinline__ uint32_t pack2(float a, float b) {
  const __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&p);
}
__device__ __forceinline__ void store8(float* p, const Vec8& x) {
  reinterpret_cast<float4*>(p)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}
__device__ __forceinline__ void store8(bf* p, const Vec8& x) {
  *reinterpret_cast<uint4*>(p) =
      make_uint4(pack2(x.v[0], x.v[1]), pack2(x.v[2], x.v[3]), pack2(x.v[4], x.v[5]), pack2(x.v[6], x.v[7]));
}

// True when rows of n elements can be read 8 at a time.
inline bool can_vector(const TensorView& v, int64_t n) {
  return n % 8 == 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0 &&
         (v.stride[0] * static_cast<int64_t>(dtype_bytes(v.dtype))) % 16 == 0;
}

__device__ __forceinline__ uint4 choose(bool first, const uint4& a, const uint4& b) {
  return make_uint4(first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}
// Sum over the block in a fixed order; every thread gets it. `scratch` has 32 floats; may be reused after the call.
__device__ __forceinline__ float block_sum(float v, float* scratch) {
  const int warps = static_cast<int>(blockDim.x) / 32, lane = threadIdx.x & 31;
  v = warp_sum(v);
  if (warps == 1) return v;
  __syncthreads();
  if (lane == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

}  // namespace tern::cuda
