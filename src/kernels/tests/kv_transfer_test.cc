#include "kernels/kv_transfer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tern {
namespace {

KvSpec spec_of(DType type) {
  KvSpec s;
  s.arrangement = KvArrangement::kCpuPacked, s.dtype = type, s.layers = 1, s.kv_heads = 2;
  s.head_dim_k = 8, s.head_dim_v = 24, s.block_size = 16;
  return s;
}

TEST(KvTransfer, RoundTripAndPlaces) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    const KvSpec s = spec_of(type);
    const size_t e = dtype_bytes(type);
    std::vector<char> plain(s.layer_block_bytes()), packed(plain.size()), back(plain.size());
    for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<char>(i * 31 + i / 251);
    ASSERT_TRUE(import_kv_block(s, plain.data(), packed.data()).ok());
    ASSERT_TRUE(export_kv_block(s, packed.data(), back.data()).ok());
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

TEST(KvTransfer, RowsAsTheyAreAndErrors) {
  KvSpec s = spec_of(DType::kBF16);
  s.arrangement = KvArrangement::kMlaRows;
  std::vector<char> a(s.layer_block_bytes(), 7), b(a.size());
  ASSERT_TRUE(export_kv_block(s, a.data(), b.data()).ok());
  EXPECT_EQ(a, b);
  s = spec_of(DType::kF8E4M3);
  EXPECT_FALSE(export_kv_block(s, a.data(), b.data()).ok());
  s = spec_of(DType::kBF16);
  s.version = kKvLayoutVersion + 1;
  EXPECT_FALSE(import_kv_block(s, a.data(), b.data()).ok());
}

}  // namespace
}  // namespace tern
