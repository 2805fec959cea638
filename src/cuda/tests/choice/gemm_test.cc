// Which kernel takes a product with one weight: the table that README.md tells in words.
#include <string>

#include "cuda/gemm/may_fuse.h"
#include "cuda/tests/choice/cases.h"

namespace tern::cuda::choice_test {
namespace {

using K = GemmKernel;

struct Case {
  int64_t n, k, rows;
  K fast, deterministic;
  int split = 1, split_deterministic = 1;
};

// clang-format off
constexpr Case kPlain[] = {
    // QKV, output, gate and up, down and vocabulary of Qwen3-8B.
    {6144, 4096, 1, K::kSingleWave, K::kWgmma, 1, 4},
    {6144, 4096, 64, K::kWgmma, K::kWgmma, 4, 4},
    {6144, 4096, 65, K::kLargeTileSlim, K::kLargeTile192, 1, 4},
    {6144, 4096, 100, K::kLargeTileSlim, K::kLargeTile192, 1, 4},
    {6144, 4096, 256, K::kLibrary, K::kLargeTile192, 1, 4},
    {6144, 4096, 8192, K::kLibrary, K::kLargeTileSums, 1, 4},
    {4096, 4096, 1, K::kSingleWave, K::kLargeTile128, 1, 4},
    {4096, 4096, 8, K::kSingleWave, K::kLargeTile128, 1, 4},
    {4096, 4096, 9, K::kWgmma, K::kLargeTile128, 4, 4},
    {4096, 4096, 64, K::kWgmma, K::kLargeTile128, 4, 4},
    {4096, 4096, 100, K::kLargeTile128, K::kLargeTile128, 4, 4},
    {4096, 12288, 1, K::kStreamK, K::kLargeTile128, 1, 4},
    {4096, 12288, 16, K::kStreamK, K::kLargeTile128, 1, 4},
    {4096, 12288, 64, K::kLargeTile128, K::kLargeTile128, 4, 4},
    {4096, 12288, 100, K::kLargeTile128, K::kLargeTile128, 4, 4},
    {4096, 12288, 129, K::kLibrary, K::kLargeTile128, 1, 4},
    {151936, 4096, 1, K::kWgmma, K::kWgmma},
    {151936, 4096, 32, K::kLargeTileCluster, K::kWgmma},
    {151936, 4096, 100, K::kLargeTileCluster, K::kLargeTile192},
    {151936, 4096, 256, K::kLibrary, K::kLargeTile192},
    // Of the README: 128 tiles of 112 rows.
    {14336, 4096, 8, K::kSingleWave, K::kWgmma, 1, 2},
    {14336, 4096, 16, K::kSingleWave, K::kWgmma, 1, 2},
    {14336, 4096, 17, K::kLargeTileCluster, K::kWgmma, 1, 2},
    // ERNIE-4.5-0.3B: small weights.
    {2560, 1024, 1, K::kSmemResident, K::kSplitKDsmem, 1, 4},
    {2560, 1024, 3, K::kSplitKDsmem, K::kSplitKDsmem, 4, 4},
    {2560, 1024, 16, K::kSplitKDsmem, K::kSplitKDsmem, 4, 4},
    {1024, 2048, 8, K::kSplitKDsmem, K::kSplitKDsmem, 8, 8},
    {1024, 3072, 64, K::kSplitKDsmem, K::kSplitKDsmem, 8, 8},
    {1024, 3072, 100, K::kLibrary, K::kWgmma, 1, 8},
    {8192, 8192, 2, K::kWgmma, K::kLargeTile128, 2, 2},
    // Tiles of 32 rows for each of 128 multiprocessors, behind which a norm may follow.
    {4096, 5120, 8, K::kSingleWave, K::kLargeTile128, 1, 4},
    {4096, 5120, 9, K::kWgmma, K::kLargeTile128, 4, 4},
    {1000, 520, 4, K::kRegisterResident, K::kSplitKDsmem, 1, 2},
};
constexpr Case kGated[] = {
    {24576, 4096, 1, K::kSingleWave, K::kLargeTileGated},
    {24576, 4096, 8, K::kSingleWave, K::kLargeTileGated},
    {24576, 4096, 33, K::kWgmma, K::kLargeTileGated, 2, 1},
    {24576, 4096, 64, K::kWgmma, K::kLargeTileGated, 2, 1},
    {24576, 4096, 65, K::kLargeTileGated, K::kLargeTileGated},
    {24576, 4096, 100, K::kLargeTileGated, K::kLargeTileGated},
    {24576, 4096, 192, K::kLargeTileGated, K::kLargeTileGated},
    {24576, 4096, 256, K::kLargeTileGated, K::kLargeTileGated},
    {24576, 4096, 8192, K::kGateWide, K::kWgmma},
    {6144, 1024, 1, K::kSmemResident, K::kSplitKDsmem, 1, 4},
    {6144, 1024, 4, K::kSplitKDsmem, K::kSplitKDsmem, 4, 4},
    {6144, 1024, 64, K::kSplitKDsmem, K::kSplitKDsmem, 4, 4},
    {6144, 1024, 100, K::kApart, K::kWgmma, 1, 4},
    {6144, 1024, 256, K::kGateSmall, K::kWgmma, 1, 4},
    {6144, 1024, 512, K::kGateNarrow, K::kWgmma, 1, 4},
    {6144, 1024, 8192, K::kGateWide, K::kWgmma, 1, 4},
    {28672, 4096, 8, K::kWgmma, K::kWgmma},
    {28672, 4096, 33, K::kWgmma, K::kWgmma},
    {25344, 4096, 8, K::kSingleWave, K::kLargeTileGated},
    {25344, 4096, 32, K::kSingleWave, K::kLargeTileGated},
};
// clang-format on

std::string title(const Case& c, const char* mode) {
  return std::to_string(c.rows) + " rows by " + std::to_string(c.n) + " x " + std::to_string(c.k) + ", " + mode;
}

void expect(const GemmChoice& choice, K kernel, int split, const std::string& what) {
  EXPECT_EQ(static_cast<int>(choice.kernel), static_cast<int>(kernel)) << what;
  EXPECT_EQ(choice.split, split) << what;
}

TEST(ChooseGemm, OnAnH100) {
  for (const Case& c : kPlain) {
    const Gemm g = gemm(c.rows, c.n, c.k);
    expect(choose_gemm(g, h100()), c.fast, c.split, title(c, "fast"));
    expect(choose_gemm(g, deterministic()), c.deterministic, c.split_deterministic, title(c, "deterministic"));
  }
}

TEST(ChooseGemm, WithItsGateOnAnH100) {
  for (const Case& c : kGated) {
    const Gemm g = gated(c.rows, c.n, c.k);
    expect(choose_gated(g, true, h100()), c.fast, c.split, title(c, "gated"));
    expect(choose_gated(g, true, deterministic()), c.deterministic, c.split_deterministic, title(c, "deterministic"));
  }
}

// A product in bfloat16 is rounded before its gate: only kernels that take many rows have that gate.
TEST(ChooseGemm, GateOfABf16Product) {
  EXPECT_EQ(choose_gated(gated(8, 24576, 4096), false, h100()).kernel, K::kApart);
  EXPECT_EQ(choose_gated(gated(100, 24576, 4096), false, h100()).kernel, K::kLargeTileGated);
  EXPECT_EQ(choose_gated(gated(8192, 24576, 4096), false, h100()).kernel, K::kGateWide);
}

TEST(ChooseGemm, BeforeHopper) {
  EXPECT_EQ(choose_gemm(gemm(4, 4096, 4096), a100()).kernel, K::kGemv);
  EXPECT_EQ(choose_gemm(gemm(5, 4096, 4096), a100()).kernel, K::kLibrary);
  EXPECT_EQ(choose_gemm(gemm(5, 4096, 4096), a100(), false).kernel, K::kMma);
  EXPECT_EQ(choose_gated(gated(8, 24576, 4096), true, a100()).kernel, K::kApart);
  GemmFacts f = a100();
  f.deterministic = true, f.library = false;
  EXPECT_EQ(choose_gemm(gemm(1, 4096, 4096), f).kernel, K::kMma);
  // Held to less shared memory, Hopper has what smaller GPUs have.
  f = h100(), f.smem_limit = 99 * 1024;
  EXPECT_EQ(choose_gemm(gemm(8, 4096, 4096), f).kernel, K::kLibrary);
}

TEST(ChooseGemm, ByTypesAndStrides) {
  Gemm g = gemm(8, 128, 4096);
  g.w_bf16 = false;
  EXPECT_EQ(choose_gemm(g, h100()).kernel, K::kMixed);
  g.x_bf16 = false;
  EXPECT_EQ(choose_gemm(g, h100()).kernel, K::kSimple);
  g.rows = 4;
  EXPECT_EQ(choose_gemm(g, h100()).kernel, K::kGemv);
  EXPECT_EQ(choose_gemm(g, deterministic()).kernel, K::kSimple);
  // Patches of a picture: rows of 588 values begin at multiples of 8 bytes.
  g = gemm(1024, 1152, 588);
  EXPECT_EQ(choose_gemm(g, h100()).kernel, K::kLibraryUnaligned);
  EXPECT_EQ(choose_gemm(g, h100(), false).kernel, K::kSimple);
  EXPECT_EQ(choose_gemm(g, deterministic()).kernel, K::kSimple);
  // cuBLASLt adds a bias of the results' type.
  const float bias = 0;
  g = gemm(256, 4096, 4096);
  g.bias = &bias;
  EXPECT_EQ(choose_gemm(g, h100()).kernel, K::kLibrary);
  g.out_bf16 = true;
  EXPECT_EQ(choose_gemm(g, h100()).kernel, K::kWgmma);
  g.short_bias = &bias;
  EXPECT_EQ(choose_gemm(g, h100()).kernel, K::kLibrary);
}

// What a stream lacks: memory for parts, blocks that may wait for each other, cuBLASLt.
TEST(ChooseGemm, ByWhatAStreamHas) {
  GemmFacts f = h100();
  f.parts = f.waits = false;
  EXPECT_EQ(choose_gemm(gemm(8, 4096, 12288), f).kernel, K::kSingleWave);
  EXPECT_EQ(choose_gemm(gemm(100, 4096, 12288), f).kernel, K::kLibrary);
  f = h100(), f.waits = false;
  EXPECT_EQ(choose_gemm(gemm(8, 4096, 12288), f).kernel, K::kStreamK);
  EXPECT_EQ(choose_gemm(gemm(100, 4096, 12288), f).kernel, K::kLibrary);
  f = h100(), f.library = false;
  expect(choose_gemm(gemm(8192, 4096, 12288), f), K::kWgmma, 1, "without cuBLASLt");
  f.sm90_files = false;
  EXPECT_EQ(choose_gemm(gemm(8, 1024, 1024), f).kernel, K::kRegisterResident);
}

// Sums of deterministic mode do not depend on the rows beside them: all kernels that a weight meets cut k alike.
TEST(ChooseGemm, DeterministicSumsDependOnTheWeightAlone) {
  for (const Case& c : kPlain) {
    const int64_t n = c.n, k = c.k;
    const int split = choose_gemm(gemm(1, n, k), deterministic()).split;
    for (const int64_t rows : {1, 2, 3, 8, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 256, 257, 1024, 8192}) {
      const GemmChoice choice = choose_gemm(gemm(rows, n, k), deterministic());
      EXPECT_EQ(choice.split, split) << title({n, k, rows, K::kWgmma, K::kWgmma}, "deterministic");
      EXPECT_NE(choice.kernel, K::kSingleWave);
      EXPECT_NE(choice.kernel, K::kStreamK);
      EXPECT_NE(choice.kernel, K::kLibrary);
      EXPECT_NE(choice.kernel, K::kRegisterResident);
      EXPECT_NE(choice.kernel, K::kSmemResident);
    }
  }
}

TEST(ChooseGemm, NormsBesideProducts) {
  const GemmFacts f = h100();
  // Output projection of Qwen3-8B, one tile of 32 rows for each of 128 multiprocessors; down projection: stream-K.
  EXPECT_TRUE(before_norm(gemm(8, 4096, 4096), f));
  EXPECT_EQ(norm_width(gemm(8, 4096, 4096), f), kSingleWaveWidth);
  EXPECT_TRUE(before_norm(gemm(8, 4096, 12288), f));
  EXPECT_EQ(norm_width(gemm(8, 4096, 12288), f), 16);
  EXPECT_EQ(norm_width(gemm(16, 4096, 4096), f), 128);
  EXPECT_TRUE(behind_norm(gemm(8, 6144, 4096), f));
  EXPECT_TRUE(behind_norm(gated(8, 24576, 4096), f));
  EXPECT_FALSE(behind_norm(gemm(8, 4096, 12288), f));
  EXPECT_FALSE(before_norm(gemm(65, 4096, 4096), f));
  Gemm g = gemm(8, 4096, 4096);
  g.w_bf16 = false;  // may_fuse.h
  EXPECT_FALSE(before_norm(g, f));
  EXPECT_FALSE(behind_norm(g, f));
  // More rows: parts of k, an addition of cuBLASLt's, halves of k.
  EXPECT_EQ(parts_pay(gemm(100, 4096, 4096), f), 4);
  EXPECT_EQ(parts_pay(gemm(129, 4096, 4096), f), 1);
  EXPECT_FALSE(onto_pays(gemm(100, 4096, 4096), f));
  EXPECT_TRUE(onto_pays(gemm(129, 4096, 4096), f));
  EXPECT_TRUE(halves_pay(gemm(256, 4096, 4096), f));
  EXPECT_FALSE(halves_pay(gemm(512, 4096, 4096), f));
}

// A format or a collective that a fusion's rule does not name is not fused.
TEST(MayFuse, WhatTheTableNames) {
  Gemm g = gemm(8, 4096, 4096);
  for (const Fusion f : {Fusion::kNormAfter, Fusion::kNormBefore, Fusion::kChain, Fusion::kExpertSum,
                         Fusion::kResidualAdd, Fusion::kPartsIntoNorm}) {
    g.w_bf16 = true;
    EXPECT_TRUE(may_fuse(f, g));
    g.w_bf16 = false;
    EXPECT_FALSE(may_fuse(f, g));
    EXPECT_FALSE(may_fuse(f, WeightKind::kBf16, static_cast<Collective>(99)));
  }
}

}  // namespace
}  // namespace tern::cuda::choice_test
