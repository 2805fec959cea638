// Which kernel takes a product with a weight that is codes.
#include <string>

#include "cuda/gemm/codes/choice_codes.h"
#include "cuda/tests/choice/cases.h"

namespace tern::cuda::choice_test {
namespace {

using T = CodeTile;

struct CodeCase {
  int n, k;
  int64_t rows;
  T fast, deterministic;
};

// clang-format off
constexpr CodeCase kPlainCodes[] = {
    // Gate and up, and output, of Qwen3-8B: with 64 rows of the weight a block the first fills 132 multiprocessors.
    {24576, 4096, 1, T::kFew8, T::kFixed8},
    {24576, 4096, 8, T::kFew8, T::kFixed8},
    {24576, 4096, 9, T::kFew16, T::kFixed64},
    {24576, 4096, 17, T::kFew32, T::kFixed64},
    {24576, 4096, 33, T::kFew64, T::kFixed64},
    {24576, 4096, 65, T::kFixed64, T::kFixed64},
    {4096, 4096, 1, T::kSmall8, T::kFixed8},
    {4096, 4096, 16, T::kSmall16, T::kFixed64},
    {4096, 4096, 32, T::kSmall32, T::kFixed64},
    {4096, 4096, 64, T::kSmall64, T::kFixed64},
    {4096, 4096, 128, T::kFew64, T::kFixed64},   // 32 x 2 tiles leave multiprocessors idle: warps share k
    {4096, 4096, 512, T::kFixed64, T::kFixed64},
};
// clang-format on

CodeGemm codes(int64_t rows, int n, int k) {
  CodeGemm g;
  g.w.n = n, g.w.k = k, g.rows = rows, g.x_row = k, g.out_row = n;
  return g;
}

TEST(ChooseCodes, OneWeight) {
  for (const CodeCase& c : kPlainCodes) {
    const std::string what = std::to_string(c.rows) + " rows, weight " + std::to_string(c.n);
    EXPECT_EQ(static_cast<int>(choose_codes(codes(c.rows, c.n, c.k), h100())), static_cast<int>(c.fast)) << what;
    EXPECT_EQ(static_cast<int>(choose_codes(codes(c.rows, c.n, c.k), deterministic())),
              static_cast<int>(c.deterministic))
        << what;
  }
}

TEST(ChooseCodes, ExpertsAndZeroPoints) {
  static const int32_t offsets[129] = {};
  CodeGemm g = codes(1024, 1536, 2048);
  g.offsets = offsets, g.groups = 128;
  EXPECT_EQ(choose_codes(g, h100()), T::kFew8) << "eight rows per expert on average";
  g.rows = 128 * 9;
  EXPECT_EQ(choose_codes(g, h100()), T::kFixed64);
  CodeGemm zeros = codes(16, 4096, 4096);
  zeros.w.zeros = true;
  EXPECT_EQ(choose_codes(zeros, h100()), T::kFixed64);
  zeros.rows = 8;
  EXPECT_EQ(choose_codes(zeros, h100()), T::kFew8);
}

TEST(ChooseCodes, WhatTensorCoresCannotRead) {
  CodeGemm g = codes(8, 4096, 4096);
  g.x_bf16 = false;
  EXPECT_EQ(choose_codes(g, h100()), T::kSimple);
  EXPECT_FALSE(codes_gate_fits(g, h100()));
  g = codes(8, 4096, 4096), g.x_row = 4100;
  EXPECT_EQ(choose_codes(g, h100()), T::kSimple);
  g = codes(8, 4096, 4096), g.x = reinterpret_cast<const void*>(uintptr_t{8});
  EXPECT_EQ(choose_codes(g, h100()), T::kSimple);
  g = codes(8, 4096, 4096), g.heads = true;
  EXPECT_EQ(choose_codes(g, h100()), T::kSimple);
}

TEST(ChooseCodes, ManyRowsAreMultipliedAfterTheWeightIsWidened) {
  DeviceFacts f = h100();
  EXPECT_FALSE(widen_first(codes(4096, 4096, 4096), f)) << "no memory for it";
  f.wide_bytes = 64 << 20;
  EXPECT_TRUE(widen_first(codes(257, 4096, 4096), f));
  EXPECT_FALSE(codes_gate_fits(codes(257, 4096, 4096), f));
  EXPECT_FALSE(widen_first(codes(256, 4096, 4096), f));
  EXPECT_TRUE(codes_gate_fits(codes(256, 4096, 4096), f));
  f.library = false;
  EXPECT_FALSE(widen_first(codes(4096, 4096, 4096), f));
  f = deterministic(), f.wide_bytes = 64 << 20;
  EXPECT_FALSE(widen_first(codes(4096, 4096, 4096), f));
}

}  // namespace
}  // namespace tern::cuda::choice_test
