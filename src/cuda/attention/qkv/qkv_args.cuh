// What kernels need to know of the pass between the QKV projection and attention.
#pragma once

#include "base/error.h"
#include "cuda/attention/attention_args.h"
#include "cuda/ptx/kernel_util.cuh"
#include "ops/rope.h"

namespace tern::cuda {

struct QkvArgs {
  int heads, kv_heads, dim, half;
  bool interleaved;
  float eps;
  int64_t row;  // elements of a qkv row's stride
  const void *q_norm, *k_norm;
  bool norm_bf16;
  const float *cos, *sin;
  int64_t cos_row, sin_row;
  char* cache;
  int64_t block_stride;  // bytes
  int block_size;
  const int64_t* slots;
  void* q = nullptr;  // of the cache's type; null: in place
  int64_t q_row = 0, tokens = 0;

  // Where the values of token t's first KV head go in the cache; null: nowhere (padding).
  template <class C>
  __device__ C* cached(int64_t t) const {
    const int64_t slot = slots[t];
    if (slot < block_size) return nullptr;  // the null block
    return reinterpret_cast<C*>(cache + slot / block_size * block_stride) + slot % block_size * dim;
  }
  // Where the values of head h of token t go, `first_kv` being cached(t); null: nowhere.
  template <class C>
  __device__ C* place(int64_t t, int h, C* first_kv) const {
    if (h < heads) return static_cast<C*>(q) + t * q_row + h * dim;
    return first_kv == nullptr ? nullptr : first_kv + int64_t{h - heads} * block_size * dim;
  }
  template <class C>
  __device__ C* place(int64_t t, int h) const {
    return place<C>(t, h, h < heads ? nullptr : cached<C>(t));
  }
};

// A quantized cache; `a` but for the cache's type as for others (qkv_codes.cu).
Status qkv_codes(const ops::QkvPrepareParams& p, const QkvArgs& a, device::Stream stream);
// Rows in bfloat16 at multiples of 16 bytes, heads of 64 or 128 values (qkv_wide.cu).
bool qkv_wide_fits(const ops::QkvPrepareParams& p, const QkvArgs& a);
Status qkv_wide(const ops::QkvPrepareParams& p, const QkvArgs& a, device::Stream stream);

}  // namespace tern::cuda
