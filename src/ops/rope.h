// Rotary positions. Frequencies are data (every scaling of models-other.md 1.2 is a table made on the host), and each
// frequency names the position row it reads, which covers 1-D, M-RoPE and ERNIE-VL's 3-D form alike.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "device/kv_layout.h"
#include "device/tensor.h"

namespace tern::ops {

enum class RopeStyle : uint8_t {
  kHalfSplit,    // pairs (i, i + d/2)
  kInterleaved,  // pairs (2i, 2i + 1)
};

// cos[t, i] = factor * cos(positions[axis[i], t] * inv_freq[i]); once per step, shared by all layers.
struct RopeTableParams {
  TensorView positions;  // [3, T] int32
  TensorView inv_freq;   // [d/2] f32
  TensorView axis;       // [d/2] uint8: 0 t, 1 h, 2 w
  float factor = 1.0f;   // YaRN's attention factor
  TensorView cos, sin;   // [T, d/2] f32
};
Status rope_table(const RopeTableParams& params, device::Stream stream);

// Rotates the first rotary_dim = 2 * cos.dim[1] values of every head in place.
struct RopeParams {
  TensorView x;         // [T, heads, D], row stride free
  TensorView cos, sin;  // [T, rotary_dim / 2] f32
  RopeStyle style = RopeStyle::kHalfSplit;
  TensorView out;  // empty: in place; else [T, heads, D] of x's type, or bf16 (x is then rotated too)
};
Status rope(const RopeParams& params, device::Stream stream);

// What lies between the QKV projection and attention, in one pass: optional per-head RMS norm of q and k, rotation of q
// and k, and the write of k and v into the cache. q is left rotated in place, or goes to `q`. A float32 qkv with a
// bfloat16 cache is rounded once, at the end: without `q` each row is left as bfloat16 values in its own first half. A
// quantized cache needs `q`; keys and values become codes from what they are before any rounding to bfloat16.
struct QkvPrepareParams {
  TensorView qkv;  // [T, (heads + 2 * kv_heads) * D]: q heads, k heads, v heads
  int heads = 0, kv_heads = 0, head_dim = 0;
  TensorView q_norm, k_norm;  // empty, or [D]
  float eps = 1e-6f;
  TensorView cos, sin;  // [T, rotary_dim / 2] f32; empty: no rotation
  RopeStyle style = RopeStyle::kHalfSplit;
  KvLayerView cache;
  TensorView slot_mapping;  // [T] int64: block * block_size + offset; block 0 is the null block
  // Empty, or [T, heads * D] of the cache's type, apart from qkv: what is left in qkv is then undefined. Of a quantized
  // cache: of qkv's type, or bf16.
  TensorView q;
};
Status qkv_prepare(const QkvPrepareParams& params, device::Stream stream);

// MLA: writes [latent | rotated rope part] rows into a kMlaRows cache.
struct MlaCacheWriteParams {
  TensorView latent;  // [T, kv_lora_rank], already normalised
  TensorView rope;    // [T, rope_dim], already rotated
  KvLayerView cache;
  TensorView slot_mapping;  // [T] int64
};
Status mla_cache_write(const MlaCacheWriteParams& params, device::Stream stream);

}  // namespace tern::ops
