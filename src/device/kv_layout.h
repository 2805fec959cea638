// How keys and values lie in a block of the paged cache. One description, used by kernels, by the sizing of the cache
// and by export and import of blocks between instances.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/dtype.h"

namespace tern {

// Block sizes are multiples of this: kernels of CPUs read keys in tiles of so many tokens, and those of GPUs have fast
// paths for whole tiles.
inline constexpr int kBlockSizeStep = 16;

enum class KvArrangement : uint8_t {
  // One layer of a block: [K heads][V heads], each head [token][d] (the exchange form; GPUs).
  kHeadsKV,
  // One layer of a block, same bytes as kHeadsKV: first K of every head, then V of every head.
  //   bf16: a K head is [d/2][token][2] (pairs of d side by side), a V head is [token/2][d][2] (pairs of tokens side by
  //         side): both are the panels that a bf16 dot product with two products per lane reads.
  //   f32:  a K head is [d][token], a V head is [token][d].
  // block_size is a multiple of kBlockSizeStep, head dimensions are multiples of 8.
  kCpuPacked,
  kMlaRows,  // [token][width]: latent then rotated rope part
};

// One group of layers whose blocks look alike.
struct KvSpec {
  KvArrangement arrangement = KvArrangement::kHeadsKV;
  DType dtype = DType::kBF16;
  int layers = 0;                 // decoder layers of the group, MTP layers included
  int kv_heads = 0;               // of this rank; 1 for MLA
  int head_dim_k = 0;             // MLA: the whole row (kv_lora_rank + rope)
  int head_dim_v = 0;             // MLA: 0 (V is a prefix of the row)
  int block_size = 64;            // tokens
  int scale_bytes_per_token = 0;  // dynamic scales of quantized caches

  size_t layer_block_bytes() const {
    return static_cast<size_t>(block_size) *
           (static_cast<size_t>(kv_heads) * static_cast<size_t>(head_dim_k + head_dim_v) * dtype_bytes(dtype) +
            static_cast<size_t>(scale_bytes_per_token));
  }
  // Whether attention can read blocks of this size.
  bool block_size_fits() const {
    return block_size > 0 && (arrangement != KvArrangement::kCpuPacked || block_size % kBlockSizeStep == 0);
  }
  size_t block_bytes() const { return layer_block_bytes() * static_cast<size_t>(layers); }
};

// The memory behind the block numbers of one layer: block b starts at base + b * block_stride.
struct KvLayerView {
  char* base = nullptr;
  size_t block_stride = 0;  // bytes
  KvSpec spec;
};

}  // namespace tern
