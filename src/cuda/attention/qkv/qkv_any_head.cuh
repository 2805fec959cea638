// A head of any size between the QKV projection and attention, in shared memory, by one warp.
#pragma once

#include "cuda/attention/qkv/qkv_args.cuh"

namespace tern::cuda {
namespace {

// Pair i of a head: where its two values lie.
__device__ __forceinline__ int2 pair_of(int i, int half, bool interleaved) {
  return interleaved ? make_int2(2 * i, 2 * i + 1) : make_int2(i, i + half);
}

__device__ __forceinline__ float norm_weight(const QkvArgs& a, const void* w, int i) {
  return a.norm_bf16 ? as_float(static_cast<const bf*>(w)[i]) : static_cast<const float*>(w)[i];
}

// The head in shared memory, normalised and rotated with the roundings of type T. `v` is the warp's own.
template <class T>
__device__ void prepare_head(const QkvArgs& a, int64_t t, const void* norm, float* v) {
  const int lane = threadIdx.x & 31;
  if (norm != nullptr) {
    float sum = 0.0f;
    for (int i = lane; i < a.dim; i += 32) sum += v[i] * v[i];
    const float r = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(a.dim) + a.eps);
    for (int i = lane; i < a.dim; i += 32) v[i] = rounded<T>(rounded<T>(v[i] * r) * norm_weight(a, norm, i));
    __syncwarp();
  }
  if (a.cos == nullptr) return;
  const float *c = a.cos + t * a.cos_row, *s = a.sin + t * a.sin_row;
  for (int i = lane; i < a.half; i += 32) {
    const int2 p = pair_of(i, a.half, a.interleaved);
    const float x = v[p.x], y = v[p.y];
    v[p.x] = rounded<T>(x * c[i] - y * s[i]);
    v[p.y] = rounded<T>(y * c[i] + x * s[i]);
  }
  __syncwarp();
}

// Head h of token t as floats in `v`, the warp's own, with all that comes before attention done to it.
template <class T>
__device__ void bring_head(const T* qkv, const QkvArgs& a, int64_t t, int h, float* v) {
  const T* from = qkv + t * a.row + h * a.dim;
  for (int i = threadIdx.x & 31; i < a.dim; i += 32) v[i] = as_float(from[i]);
  __syncwarp();
  if (h < a.heads + a.kv_heads) prepare_head<T>(a, t, h < a.heads ? a.q_norm : a.k_norm, v);
}

// Which head a warp of a launch with a warp per head has; none where the token is behind the last one.
struct HeadOfWarp {
  int64_t token;
  int head;
  __device__ explicit HeadOfWarp(const QkvArgs& a) {
    const int all = a.heads + 2 * a.kv_heads;
    const int64_t item = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
    token = item / all, head = static_cast<int>(item % all);
  }
};

}  // namespace
}  // namespace tern::cuda
