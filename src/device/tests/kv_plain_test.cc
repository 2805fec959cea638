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

TEST(KvPlain, CodesCarryTheirScales) {
  for (const DType type : {DType::kI8, DType::kF8E4M3}) {
    KvSpec s = spec_of(type);
    s.head_dim_k = 16, s.head_dim_v = 32;
    EXPECT_EQ(s.scales_offset(), 16u * 2 * 48);
    EXPECT_EQ(s.layer_block_bytes(), 16u * 2 * (48 + 8));
    std::vector<char> plain(s.layer_block_bytes()), packed(plain.size()), back(plain.size());
    for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<char>(i * 31 + i / 251);
    kv_from_plain(s, plain.data(), packed.data());
    kv_to_plain(s, packed.data(), back.data());
    EXPECT_EQ(plain, back);
    EXPECT_EQ(std::memcmp(&plain[s.scales_offset()], &packed[s.scales_offset()], 16 * 2 * 8), 0);
    // K of head 1, token 5, d 6; V of head 1, token 6, d 7.
    EXPECT_EQ(plain[16 * 16 + 5 * 16 + 6], packed[16 * 16 + (1 * 16 + 5) * 4 + 2]);
    const size_t v = 2 * 16 * 16 + 16 * 32 + (1 * 32 + 7) * 4 + 2;
    EXPECT_EQ(plain[v], packed[v]);
  }
}

TEST(KvPlain, BytesOfATokenFallNearlyByHalf) {
  KvSpec s;
  s.layers = 1, s.kv_heads = 8, s.head_dim_k = s.head_dim_v = 128, s.block_size = 64;
  const auto wide = static_cast<double>(s.block_bytes());
  s.dtype = DType::kI8;
  EXPECT_GE(wide / static_cast<double>(s.block_bytes()), 1.9);
}

}  // namespace
}  // namespace tern::device
