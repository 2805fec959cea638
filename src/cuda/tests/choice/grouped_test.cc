// Which kernel takes products with one weight per expert.
#include <string>

#include "cuda/tests/choice/cases.h"

namespace tern::cuda::choice_test {
namespace {

using K = GroupedKernel;

struct Case {
  int experts;
  int64_t n, k, rows;  // rows: pairs of a token and an expert
  K fast, deterministic;
  int split = 1;
};

const int32_t kOffsets[1] = {};

Gemm grouped(Gemm g, int experts) {
  g.groups = experts, g.offsets = kOffsets;
  return g;
}

// clang-format off
constexpr Case kDown[] = {  // 2048 x 768 of Qwen3-30B-A3B, eight experts a token; 1024 x 256: a small model's
    {128, 2048, 768, 8, K::kFew, K::kTiles32Three},
    {128, 2048, 768, 16, K::kTiles32Three, K::kTiles32Three},
    {128, 2048, 768, 64, K::kTiles32Three, K::kTiles32Three},
    {128, 2048, 768, 72, K::kTiles32, K::kTiles32},
    {128, 2048, 768, 1024, K::kTiles32, K::kTiles32},
    {128, 2048, 768, 1025, K::kWide, K::kWide},
    {128, 2048, 768, 128 * 73 - 1, K::kWide, K::kWide},
    {128, 2048, 768, 128 * 73, K::kPairs, K::kPairs},
    {8, 1024, 512, 9, K::kTiles32, K::kTiles32, 2},
    {8, 1024, 320, 8, K::kTiles32, K::kTiles32},  // no k of kFew, and too short to be cut
    {257, 2048, 768, 8, K::kTiles32, K::kTiles32Three, 2},
    {257, 2048, 768, 8192, K::kTiles128, K::kTiles128},
};
constexpr Case kGateUp[] = {
    {128, 1536, 2048, 8, K::kFew, K::kTiles32Three},
    {128, 1536, 2048, 64, K::kTiles32Three, K::kTiles32Three},
    {128, 1536, 2048, 800, K::kTiles32, K::kTiles32},
    {128, 1536, 2048, 8192, K::kWide, K::kWide},
    {128, 1536, 2048, 65536, K::kPairs, K::kPairs},
};
// clang-format on

void expect(const GroupedChoice& choice, K kernel, int split, const Case& c) {
  const std::string what = std::to_string(c.rows) + " rows of " + std::to_string(c.experts) + " experts";
  EXPECT_EQ(static_cast<int>(choice.kernel), static_cast<int>(kernel)) << what;
  EXPECT_EQ(choice.split, split) << what;
}

TEST(ChooseGrouped, OnAnH100) {
  for (const Case& c : kDown) {
    const Gemm g = grouped(gemm(c.rows, c.n, c.k), c.experts);
    expect(choose_grouped(g, true, h100()), c.fast, c.split, c);
    expect(choose_grouped(g, true, deterministic()), c.deterministic, 1, c);
  }
  for (const Case& c : kGateUp) {
    const Gemm g = grouped(gated(c.rows, c.n, c.k), c.experts);
    expect(choose_grouped_gated(g, true, true, h100()), c.fast, c.split, c);
    expect(choose_grouped_gated(g, true, true, deterministic()), c.deterministic, 1, c);
  }
}

TEST(ChooseGrouped, RowsByTheirPlaces) {
  const int32_t from[1] = {};
  Gemm g = grouped(gated(8192, 1536, 2048), 128);
  g.from = from;
  EXPECT_EQ(choose_grouped_gated(g, true, true, h100()).kernel, K::kGatherWide);
  g.rows = 65536;
  EXPECT_EQ(choose_grouped_gated(g, true, true, h100()).kernel, K::kGatherPairs);
  EXPECT_TRUE(choose_grouped_gated(g, true, true, h100()).gathers());
  g.rows = 1024;  // kernels of few rows cannot
  EXPECT_EQ(choose_grouped_gated(g, true, true, h100()).kernel, K::kApart);
}

TEST(ChooseGrouped, WhatTheCopyEngineCannotRead) {
  const Gemm g = grouped(gemm(64, 2048, 768), 128);
  EXPECT_EQ(choose_grouped(g, false, h100()).kernel, K::kMma);
  EXPECT_EQ(choose_grouped(g, true, a100()).kernel, K::kMma);
  EXPECT_EQ(choose_grouped_gated(grouped(gated(64, 1536, 2048), 128), false, true, h100()).kernel, K::kApart);
  EXPECT_EQ(choose_grouped_gated(grouped(gated(64, 1536, 2048), 128), true, false, h100()).kernel, K::kApart);
  Gemm odd = grouped(gemm(64, 2048, 776), 128);
  EXPECT_EQ(choose_grouped(odd, true, h100()).kernel, K::kMma);
  odd.x_bf16 = false;
  EXPECT_EQ(choose_grouped(odd, true, h100()).kernel, K::kSimple);
  Gemm heads = gemm(8, 512, 128);
  heads.heads = true, heads.groups = 16;
  EXPECT_EQ(choose_grouped(heads, true, h100()).kernel, K::kMma);
  alignas(128) static const char weights[256] = {};
  const void* const aligned[] = {weights, weights + 128};
  const void* const shifted[] = {weights, weights + 64};
  EXPECT_TRUE(weights_aligned(aligned, 2));
  EXPECT_FALSE(weights_aligned(shifted, 2));
}

// The last products of experts with their sum and the first part of a norm: 9 to 32 pairs.
TEST(ChooseGrouped, SumOfFewPairs) {
  const auto fits = [](int64_t rows, int64_t n) { return grouped_sum_fits(grouped(gemm(rows, n, 768), 128), h100()); };
  EXPECT_FALSE(fits(8, 2048));
  EXPECT_TRUE(fits(9, 2048));
  EXPECT_TRUE(fits(32, 2048));
  EXPECT_FALSE(fits(33, 2048));
  EXPECT_FALSE(fits(16, 1024));  // 64 blocks of 132 multiprocessors: fewer than two of three
}

}  // namespace
}  // namespace tern::cuda::choice_test
