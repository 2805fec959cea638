// Where codes of a stripe lie (cuda/gemm/codes.h), against a description of what a lane of wgmma or mma.m16n8k16 holds.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cuda/gemm/codes.h"

namespace tern::cuda::choice_test {
namespace {

constexpr int kColumns = 192;

std::vector<uint8_t> some_codes(CodeKind kind) {
  std::vector<uint8_t> codes(size_t{kStripe} * kColumns);
  for (size_t i = 0; i < codes.size(); ++i) {
    const int v = static_cast<int>(i * 37 % 251);
    codes[i] = static_cast<uint8_t>(kind == CodeKind::kInt4 ? v % 15 - 7 : v);
  }
  return codes;
}

std::vector<char> laid(const CodeLayout& layout, const std::vector<uint8_t>& codes) {
  std::vector<char> stripe(static_cast<size_t>(layout.stripe_bytes()));
  lay_stripe(layout, codes.data(), kColumns, stripe.data());
  return stripe;
}

uint32_t word(const std::vector<char>& stripe, int at) {
  uint32_t w;
  std::memcpy(&w, stripe.data() + at, sizeof w);
  return w;
}

// Register i of the left operand for 16 columns from `k` on: rows lane / 4 (+ 8 where i is odd), columns
// 2 (lane % 4) and the next (+ 8 where i is 2 or 3).
struct Pair {
  uint8_t low, high;
};
Pair wanted(const std::vector<uint8_t>& codes, int lane, int i, int k) {
  const uint8_t* at = codes.data() + (lane / 4 + i % 2 * 8) * kColumns + k + lane % 4 * 2 + i / 2 * 8;
  return {at[0], at[1]};
}

TEST(CodesLayout, EveryColumnIsOneValueOfOneLane) {
  int seen[32] = {};
  for (int q = 0; q < 4; ++q)
    for (int e = 0; e < 8; ++e) ++seen[lane_column(q, e)];
  for (const int times : seen) EXPECT_EQ(times, 1);
}

// A word holds two registers' pairs: bytes 0 and 2, 1 and 3.
TEST(CodesLayout, Bytes) {
  const CodeLayout layout{CodeKind::kInt8, 0, 0, kStripe, kColumns};
  const std::vector<uint8_t> codes = some_codes(layout.kind);
  const std::vector<char> stripe = laid(layout, codes);
  for (int k = 0; k < kColumns; k += 16) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int block = k / 64 * layout.block_bytes() + k % 64 / 32 * 512;
        const uint32_t w = word(stripe, block + lane * 16 + (k % 32 / 16 * 2 + i % 2) * 4) >> i / 2 * 8;
        const Pair p = wanted(codes, lane, i, k);
        ASSERT_EQ(w & 0xff00ffu, uint32_t{p.low} | uint32_t{p.high} << 16) << k << " " << lane << " " << i;
      }
    }
  }
}

// A word holds four: halves of bytes 0 and 4, 1 and 5, 2 and 6, 3 and 7.
TEST(CodesLayout, HalvesOfBytes) {
  const CodeLayout layout{CodeKind::kInt4, 0, 0, kStripe, kColumns};
  const std::vector<uint8_t> codes = some_codes(layout.kind);
  const std::vector<char> stripe = laid(layout, codes);
  const auto half = [](uint8_t code) { return uint32_t{(code + 8u) & 15u}; };
  for (int k = 0; k < kColumns; k += 16) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int at = k / 64 * layout.block_bytes() + lane * 16 + (k % 64 / 32 * 2 + i % 2) * 4;
        const uint32_t w = word(stripe, at) >> (k % 32 / 16 * 8 + i / 2 * 4);
        const Pair p = wanted(codes, lane, i, k);
        ASSERT_EQ(w & 0xf000fu, half(p.low) | half(p.high) << 16) << k << " " << lane << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tern::cuda::choice_test
