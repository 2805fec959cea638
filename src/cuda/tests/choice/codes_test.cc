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
constexpr CodeCase kPlainCodes[] = {  // portable kernels
    // Gate and up, and output, of Qwen3-8B: with 64 rows of the weight a block the first fills 108 multiprocessors.
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

struct WgmmaCase {
  int n, k;
  int64_t rows;
  int tile, stripes, tokens, split;
  bool push;
};
constexpr WgmmaCase kWgmmaCodes[] = {  // an H100
    {24576, 4096, 8, 128, 6, 16, 1, false},     // 256 blocks, two for a multiprocessor
    {14336, 4096, 16, 128, 7, 16, 2, false},
    {14336, 4096, 17, 128, 7, 32, 2, false},
    {14336, 4096, 64, 128, 7, 64, 2, false},
    {6144, 4096, 8, 128, 6, 16, 4, false},
    {4096, 12288, 8, 128, 8, 16, 8, false},
    {4096, 4096, 8, 64, 4, 16, 8, false},       // a small weight has tiles of 64 rows
    // Smaller ones, whose parts are sent from registers: cut as bfloat16's.
    {1024, 2048, 1, 64, 4, 16, 8, true},
    {2560, 1024, 32, 64, 4, 32, 4, true},
    {1024, 3072, 64, 64, 4, 64, 8, true},
    {1024, 192, 8, 64, 4, 16, 2, false},
    // One block a multiprocessor.
    {14336, 4096, 65, 128, 8, 128, 1, false},
    {24576, 4096, 100, 128, 8, 128, 2, false},
    {4096, 4096, 128, 128, 8, 128, 4, false},
    {4096, 4096, 256, 128, 8, 128, 2, false},
    {64, 96, 100, 128, 8, 128, 1, false},       // k has one step
    {4096, 4096, 257, 0, 0, 0, 1, false},
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
    EXPECT_EQ(static_cast<int>(choose_codes(codes(c.rows, c.n, c.k), a100())), static_cast<int>(c.fast)) << what;
    EXPECT_EQ(static_cast<int>(choose_codes(codes(c.rows, c.n, c.k), deterministic())),
              static_cast<int>(c.deterministic))
        << what;
  }
}

TEST(ChooseCodes, HoppersKernel) {
  for (const WgmmaCase& c : kWgmmaCodes) {
    const std::string what =
        std::to_string(c.rows) + " rows, weight " + std::to_string(c.n) + " " + std::to_string(c.k);
    const CodesWgmma t = choose_codes_wgmma(plain_gemm(codes(c.rows, c.n, c.k)), h100());
    EXPECT_EQ(t.rows, c.tile) << what;
    EXPECT_EQ(t.stripes, c.stripes) << what;
    EXPECT_EQ(t.tokens, c.tokens) << what;
    EXPECT_EQ(t.split, c.split) << what;
    EXPECT_EQ(t.push, c.push) << what;
    EXPECT_EQ(choose_codes(codes(c.rows, c.n, c.k), h100()) == T::kWgmma, c.tile > 0) << what;
  }
}

TEST(ChooseCodes, FormatsOfHoppersKernel) {
  const auto takes = [](CodeKind kind, int group, int shift = 0, bool zeros = false) {
    CodeGemm g = codes(8, 4096, 4096);
    g.w.kind = kind, g.w.group = group, g.w.shift = shift, g.w.zeros = zeros;
    return choose_codes(g, h100()) == T::kWgmma;
  };
  EXPECT_TRUE(takes(CodeKind::kInt8, 0) && takes(CodeKind::kInt4, 0) && takes(CodeKind::kE4m3, 128));
  for (const int group : {32, 64, 128}) {
    EXPECT_TRUE(takes(CodeKind::kInt4, group));
    EXPECT_FALSE(takes(CodeKind::kInt8, group)) << "files only";
  }
  EXPECT_FALSE(takes(CodeKind::kE4m3, 0)) << "files only";
  EXPECT_FALSE(takes(CodeKind::kInt4, 128, 64)) << "a slice that begins inside a group";
  EXPECT_FALSE(takes(CodeKind::kInt4, 0, 0, true)) << "zero points";
  CodeGemm g = codes(8, 4096 + 16, 4096);
  EXPECT_EQ(choose_codes(g, h100()), T::kWgmma);
  g.gated = true;
  EXPECT_NE(choose_codes(g, h100()), T::kWgmma) << "gate and up share a stripe";
  GemmFacts emulated = h100();
  emulated.sm90_files = false;
  EXPECT_EQ(choose_codes(codes(8, 4096, 4096), emulated), T::kSmall8);
}

TEST(ChooseCodes, NormsBesideHoppersKernel) {
  const auto product = [](int64_t rows, int n, int k) {
    CodeGemm g = codes(rows, n, k);
    g.out_bf16 = false;
    return plain_gemm(g);
  };
  EXPECT_TRUE(codes_before_norm(product(1, 4096, 12288), h100()));
  EXPECT_TRUE(codes_before_norm(product(64, 1024, 3072), h100()));
  EXPECT_TRUE(codes_behind_norm(product(64, 6144, 1024), h100()));
  EXPECT_FALSE(codes_before_norm(product(65, 1024, 3072), h100())) << "more rows than norms are fused for";
  EXPECT_FALSE(codes_behind_norm(product(65, 6144, 1024), h100()));
  EXPECT_FALSE(codes_before_norm(product(8, 1024 + 32, 1024), h100())) << "sums of squares are read in fours";
  EXPECT_FALSE(codes_before_norm(product(8, 1024, 1024), a100()));
  EXPECT_FALSE(codes_behind_norm(product(8, 1024, 1024), deterministic()));
  Gemm g = product(8, 1024, 1024);
  const float bias = 0;
  g.bias = &bias;
  EXPECT_FALSE(codes_before_norm(g, h100()));
  EXPECT_TRUE(codes_behind_norm(g, h100()));
  // The other kernels, and the chain, leave products with codes alone.
  EXPECT_FALSE(mma_fits(g));
  EXPECT_FALSE(before_norm(g, h100()) || behind_norm(g, h100()) || onto_pays(g, h100()));
  EXPECT_EQ(parts_pay(g, h100()), 1);
  EXPECT_EQ(norm_width(g, h100()), 16);
  EXPECT_EQ(norm_width(product(8, 4096, 4096), h100()), 64);
  EXPECT_EQ(norm_width(product(8, 4096, 12288), h100()), 128);
  EXPECT_EQ(norm_width(product(1, 2560, 2560), h100()), 32) << "the portable kernels";
  EXPECT_EQ(norm_width(product(1, 1024, 1024), a100()), 0);
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
