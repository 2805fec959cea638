// For tests: one layer of one block of the cache between the CPU's arrangement and KvArrangement::kHeadsKV, in which
// values are easy to find (codes of values stand alike in both). Both have spec.layer_block_bytes() bytes; rows of
// latent attention are copied as they are.
#pragma once

#include <cstring>

#include "device/kv_layout.h"

namespace tern::device {

// Element index within a head of KvArrangement::kCpuPacked: bf16 pairs d of K and tokens of V, float32 pairs nothing.
inline size_t packed_index(const KvSpec& s, bool key, size_t token, size_t d) {
  const auto block = static_cast<size_t>(s.block_size), dim = static_cast<size_t>(s.head_dim_v);
  if (s.quantized()) return key ? (d / 4 * block + token) * 4 + d % 4 : (token / 4 * dim + d) * 4 + token % 4;
  if (s.dtype == DType::kF32) return key ? d * block + token : token * dim + d;
  return key ? (d / 2 * block + token) * 2 + d % 2 : (token / 2 * dim + d) * 2 + token % 2;
}

inline void move_kv_block(const KvSpec& s, const char* from, char* to, bool to_packed) {
  if (s.arrangement != KvArrangement::kCpuPacked) {
    std::memcpy(to, from, s.layer_block_bytes());
    return;
  }
  const size_t bytes = dtype_bytes(s.dtype), tokens = static_cast<size_t>(s.block_size);
  for (int part = 0; part < 2 * s.kv_heads; ++part) {
    const bool key = part < s.kv_heads;
    const auto dim = static_cast<size_t>(key ? s.head_dim_k : s.head_dim_v);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t d = 0; d < dim; ++d) {
        const size_t place = s.quantized() && !key ? packed_index(s, key, t, d) : t * dim + d;
        const size_t plain = place * bytes, packed = packed_index(s, key, t, d) * bytes;
        std::memcpy(to + (to_packed ? packed : plain), from + (to_packed ? plain : packed), bytes);
      }
    }
    from += tokens * dim * bytes, to += tokens * dim * bytes;
  }
  std::memcpy(to, from, s.layer_block_bytes() - s.scales_offset());
}

inline void kv_to_plain(const KvSpec& s, const char* block, char* plain) { move_kv_block(s, block, plain, false); }
inline void kv_from_plain(const KvSpec& s, const char* plain, char* block) { move_kv_block(s, plain, block, true); }

}  // namespace tern::device
