// Keys and values that are codes: their scales, and codes as bfloat16 pairs or floats.
#pragma once

#include "cuda/attention/attention_unit.cuh"
#include "cuda/ptx/code_pairs.cuh"

namespace tern::cuda {

// Bytes 0 and 2, or 1 and 3, of a word of codes.
template <KvCode kCode>
__device__ __forceinline__ uint32_t even_codes(uint32_t w) {
  return kCode == KvCode::kInt8 ? int8_pair(w) : e4m3_pair(w << 8, w << 4);
}
template <KvCode kCode>
__device__ __forceinline__ uint32_t odd_codes(uint32_t w) {
  return kCode == KvCode::kInt8 ? int8_pair(w >> 8) : e4m3_pair(w, w >> 4);
}

// Lower, or upper halves of two pairs.
__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xffffu) | (b << 16); }
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) { return (a >> 16) | (b & 0xffff0000u); }

__device__ __forceinline__ float code_value(KvCode kind, uint8_t code) {
  if (kind == KvCode::kInt8) return static_cast<float>(static_cast<int8_t>(code));
  const uint32_t wide = (code & 0x80u) << 8 | (code & 0x7fu) << 4;
  return __uint_as_float(wide << 16) * 0x1p120f;
}

// The block of key j of a row.
__device__ __forceinline__ const char* code_block(const AttentionArgs& a, int row, int j) {
  return a.cache + a.table[row * a.table_stride + j / a.block_size] * a.block_stride;
}
// Of a KV head's keys in a block, [token][dk], and of its values, [token / 4][dv][4].
__device__ __forceinline__ const char* code_keys(const AttentionArgs& a, const char* block, int kv_head) {
  return block + int64_t{kv_head} * a.block_size * a.dk;
}
__device__ __forceinline__ const char* code_values(const AttentionArgs& a, const char* block, int kv_head) {
  return block + int64_t{a.block_size} * (int64_t{a.kv_heads} * a.dk + int64_t{kv_head} * a.dv);
}
// Scales of a KV head's keys in a block; of its values kv_heads further on.
__device__ __forceinline__ const float* code_scales(const AttentionArgs& a, const char* block, int head) {
  return reinterpret_cast<const float*>(block + a.scales) + int64_t{head} * a.block_size;
}

// Value i of key, or value, j as a float.
__device__ __forceinline__ float code_element(const AttentionArgs& a, const AttentionUnit& u, bool values, int j,
                                              int i) {
  const char* block = code_block(a, u.row, j);
  const int at = j % a.block_size, head = u.kv_head;
  const char* code = values ? code_values(a, block, head) + (int64_t{at / 4} * a.dv + i) * 4 + at % 4
                            : code_keys(a, block, head) + int64_t{at} * a.dk + i;
  float scale = code_scales(a, block, values ? a.kv_heads + head : head)[at];
  const float* channel = values ? a.v_channel : a.k_channel;
  if (channel != nullptr) scale *= channel[head * (values ? a.dv : a.dk) + i];
  return code_value(a.code, static_cast<uint8_t>(*code)) * scale;
}

// Eight values of a query times the channel scales of its keys.
__device__ __forceinline__ void scale_query(const AttentionArgs& a, const AttentionUnit& u, int i, Vec8& x) {
  if (a.k_channel == nullptr) return;
#pragma unroll
  for (int j = 0; j < 8; ++j) x.v[j] *= a.k_channel[u.kv_head * a.dk + i + j];
}

}  // namespace tern::cuda
