#include "device/tests/kv_plain.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tern::device {
namespace {

KvSpec spec_of(DType type) {
  KvSpec s;
  s.arrangement = KvArrangement::kCpuPacked, s.dtype = type, s.layers = 1, s.kv_heads = 2;
  s.head_dim_k = 8, s.head_dim_v = 24, s.block_size = 16;
  return s;
}

TEST(KvPlain, RoundTripAndPlaces) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    const KvSpec s = spec_of(type);
    const size_t e = dtype_bytes(type);
    std::vector<char> plain(s.layer_block_bytes()), packed(plain.size()), back(plain.size());
    for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<char>(i * 31 + i / 251);
    kv_from_plain(s, plain.data(), packed.data());
    kv_to_plain(s, packed.data(), back.data());
    EXPECT_EQ(plain, back);
    EXPECT_NE(plain, packed);
    // K of head 1, token 5, d 3; V of head 1, token 5, d 7.
    const size_t k_plain = (16 * 8 + 5 * 8 + 3) * e, v_plain = (2 * 16 * 8 + 16 * 24 + 5 * 24 + 7) * e;
    const size_t k_packed = (16 * 8 + (type == DType::kBF16 ? (1 * 16 + 5) * 2 + 1 : 3 * 16 + 5)) * e;
    const size_t v_packed = (2 * 16 * 8 + 16 * 24 + (type == DType::kBF16 ? (2 * 24 + 7) * 2 + 1 : 5 * 24 + 7)) * e;
    EXPECT_EQ(std::memcmp(&plain[k_plain], &packed[k_packed], e), 0);
    EXPECT_EQ(std::memcmp(&plain[v_plain], &packed[v_packed], e), 0);
  }
}

}  // namespace
}  // namespace tern::device
