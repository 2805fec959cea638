// How keys and values lie in a block of the paged cache. One description, used by kernels, by the sizing of the cache
// and by export and import of blocks between instances.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/dtype.h"

namespace tern {

// Of what follows in this file; 2: blocks of codes carry their scales.
inline constexpr uint32_t kKvLayoutVersion = 2;

// Block sizes are multiples of this: kernels of CPUs read keys in tiles of so many tokens, and those of GPUs have fast
// paths for whole tiles.
inline constexpr int kBlockSizeStep = 16;

enum class KvArrangement : uint8_t {
  // One layer of a block: [K heads][V heads], each head [token][d] (the exchange form; GPUs). Codes: a V head is
  // [token/4][d][4], the bytes of four tokens side by side, as products over tokens read them.
  kHeadsKV,
  // One layer of a block, same bytes as kHeadsKV: first K of every head, then V of every head.
  //   bf16: a K head is [d/2][token][2] (pairs of d side by side), a V head is [token/2][d][2] (pairs of tokens side by
  //         side): both are the panels that a bf16 dot product with two products per lane reads.
  //   f32:  a K head is [d][token], a V head is [token][d].
  //   codes: a K head is [d/4][token][4], a V head is [token/4][d][4].
  // block_size is a multiple of kBlockSizeStep, head dimensions are multiples of 8.
  kCpuPacked,
  kMlaRows,  // [token][width]: latent then rotated rope part
};

// One group of layers whose blocks look alike. A value of a quantized cache (kI8, kF8E4M3) is its code times a float32
// scale per token and head. Scales stand behind the codes of a layer's part of a block, so that whoever has the block
// has them: [K heads][token], then [V heads][token]. Head dimensions and block_size are then multiples of 16.
struct KvSpec {
  KvArrangement arrangement = KvArrangement::kHeadsKV;
  DType dtype = DType::kBF16;
  int layers = 0;       // decoder layers of the group, MTP layers included
  int kv_heads = 0;     // of this rank; 1 for MLA
  int head_dim_k = 0;   // MLA: the whole row (kv_lora_rank + rope)
  int head_dim_v = 0;   // MLA: 0 (V is a prefix of the row)
  int block_size = 64;  // tokens
  // Verification on a CPU: values of float32 become what such codes would hold. kF32: they stay as they are.
  DType rounded = DType::kF32;

  bool quantized() const { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }
  // The largest code, of the cache or of `rounded`.
  float code_bound() const { return dtype == DType::kI8 || rounded == DType::kI8 ? 127.0f : 448.0f; }
  // From the beginning of a layer's part of a block to its scales.
  size_t scales_offset() const {
    return static_cast<size_t>(block_size) * static_cast<size_t>(kv_heads) *
           static_cast<size_t>(head_dim_k + head_dim_v) * dtype_bytes(dtype);
  }
  size_t layer_block_bytes() const {
    const size_t scales = quantized() ? 2 * sizeof(float) * static_cast<size_t>(kv_heads) : 0;  // of a token
    return scales_offset() + static_cast<size_t>(block_size) * scales;
  }
  // Whether attention can read blocks of this size.
  bool block_size_fits() const {
    const bool whole = arrangement != KvArrangement::kCpuPacked && !quantized();
    return block_size > 0 && (whole || block_size % kBlockSizeStep == 0);
  }
  size_t block_bytes() const { return layer_block_bytes() * static_cast<size_t>(layers); }
};

// Scales of a quantized cache that were measured beforehand, in the device's memory; null: of every token and head when
// it is written. `channels`: a scale per value of a head, [kv_heads][d], which its code is to be multiplied with beside
// the token's own scale, 1; else one per head, which is what tokens get.
struct KvScales {
  const float *k = nullptr, *v = nullptr;
  bool channels = false;
};

// The memory behind the block numbers of one layer: block b starts at base + b * block_stride.
struct KvLayerView {
  char* base = nullptr;
  size_t block_stride = 0;  // bytes
  KvSpec spec;
  KvScales scales = {};
};

}  // namespace tern
