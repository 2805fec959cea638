#include "kernels/kv_transfer.h"

#include <cstring>

namespace tern {
namespace {

// Element index within a head of kCpuPacked: K pairs d, V pairs tokens, float32 pairs nothing.
size_t packed_k(const KvSpec& s, size_t token, size_t d) {
  const auto block = static_cast<size_t>(s.block_size);
  return s.dtype == DType::kBF16 ? (d / 2 * block + token) * 2 + d % 2 : d * block + token;
}
size_t packed_v(const KvSpec& s, size_t token, size_t d) {
  const auto dim = static_cast<size_t>(s.head_dim_v);
  return s.dtype == DType::kBF16 ? (token / 2 * dim + d) * 2 + token % 2 : token * dim + d;
}

// Copies one head, element by element, in either direction.
template <class Index>
void move_head(const KvSpec& s, char* to, const char* from, int dim, bool to_packed, Index index) {
  const size_t bytes = dtype_bytes(s.dtype), width = static_cast<size_t>(dim);
  for (size_t t = 0; t < static_cast<size_t>(s.block_size); ++t) {
    for (size_t d = 0; d < width; ++d) {
      const size_t plain = (t * width + d) * bytes, packed = index(s, t, d) * bytes;
      std::memcpy(to + (to_packed ? packed : plain), from + (to_packed ? plain : packed), bytes);
    }
  }
}

Status move_block(const KvSpec& s, const void* source, void* target, bool to_packed) {
  if (s.version != kKvLayoutVersion) {
    return make_error(ErrorCode::kUnsupported, "the cache block has another layout version");
  }
  if (s.arrangement != KvArrangement::kCpuPacked) {
    std::memcpy(target, source, s.layer_block_bytes());
    return {};
  }
  const bool sound = (s.dtype == DType::kF32 || s.dtype == DType::kBF16) && s.block_size > 0 && s.block_size % 2 == 0 &&
                     s.head_dim_k % 2 == 0 && s.kv_heads > 0 && s.scale_bytes_per_token == 0;
  if (!sound) return make_error(ErrorCode::kUnsupported, "this cache layout cannot be exchanged");
  const size_t token_bytes = static_cast<size_t>(s.block_size) * dtype_bytes(s.dtype);
  const auto* from = static_cast<const char*>(source);
  auto* to = static_cast<char*>(target);
  for (int part = 0; part < 2 * s.kv_heads; ++part) {
    const bool key = part < s.kv_heads;
    const int dim = key ? s.head_dim_k : s.head_dim_v;
    move_head(s, to, from, dim, to_packed, key ? packed_k : packed_v);
    from += token_bytes * static_cast<size_t>(dim);
    to += token_bytes * static_cast<size_t>(dim);
  }
  return {};
}

}  // namespace

Status export_kv_block(const KvSpec& spec, const void* block, void* heads_kv) {
  return move_block(spec, block, heads_kv, false);
}

Status import_kv_block(const KvSpec& spec, const void* heads_kv, void* block) {
  return move_block(spec, heads_kv, block, true);
}

}  // namespace tern
