// Which kernels take an attention call.
#include <string>

#include "cuda/attention/choice.h"
#include "cuda/tests/choice/cases.h"

namespace tern::cuda::choice_test {
namespace {

using K = AttentionKernel;
using D = DecodeKernel;

// An H100, whose driver says: of 132 multiprocessors clusters of 8, 4 and 2 blocks, two blocks (in clusters of eight
// three, unless each has a multiprocessor) on each.
AttentionFacts attention_h100() {
  AttentionFacts f{h100(), {}};
  f.clusters = {.at_once = {0, 132, 66, 48}, .deep = 32};
  return f;
}
AttentionFacts attention_deterministic() {
  AttentionFacts f{deterministic(), {}};
  f.clusters = {.at_once = {0, 132, 66, 32}};
  return f;
}
AttentionFacts attention_a100() { return {a100(), {}}; }

// bf16 queries over pages of 64 tokens.
AttentionArgs pages(int rows, int heads, int kv_heads, int dim) {
  AttentionArgs a;
  a.rows = rows, a.heads = heads, a.kv_heads = kv_heads, a.dk = a.dv = dim, a.block_size = 64;
  a.q_head = dim, a.q_token = int64_t{heads} * dim, a.out_head = dim, a.out_token = a.q_token;
  a.block_stride = int64_t{2} * 64 * kv_heads * dim * 2;
  return a;
}
AttentionArgs latent_pages(int rows, int heads) {
  AttentionArgs a = pages(rows, heads, 1, 576);
  a.latent = true, a.dv = 512, a.out_head = 512, a.out_token = int64_t{heads} * 512;
  return a;
}

struct AttentionCase {
  int rows, heads, kv_heads, dim, longest;
  D decode;
  K rest;
  int cluster;  // blocks
};

void expect(const AttentionChoice& got, D decode, K rest, int cluster, const std::string& what) {
  EXPECT_EQ(static_cast<int>(got.decode), static_cast<int>(decode)) << what;
  EXPECT_EQ(static_cast<int>(got.kernel), static_cast<int>(rest)) << what;
  EXPECT_EQ(got.cluster_bits > 0 ? 1 << got.cluster_bits : 0, cluster) << what;
}

template <size_t N>
void check(const AttentionCase (&cases)[N], const AttentionFacts& f) {
  for (const AttentionCase& c : cases) {
    const std::string what = std::to_string(c.rows) + " rows, " + std::to_string(c.heads) + "/" +
                             std::to_string(c.kv_heads) + " heads of " + std::to_string(c.dim) + ", longest " +
                             std::to_string(c.longest);
    const AttentionChoice got = choose_attention(pages(c.rows, c.heads, c.kv_heads, c.dim), c.longest, f);
    expect(got, c.decode, c.rest, c.cluster, what);
  }
}

// clang-format off
constexpr AttentionCase kH100[] = {
    // Qwen3-8B: eight units a row. The largest clusters of which there are as many as units, else ranges.
    {1, 32, 8, 128, 1, D::kCluster, K::kNone, 8},
    {4, 32, 8, 128, 1, D::kCluster, K::kNone, 8},
    {6, 32, 8, 128, 1, D::kCluster, K::kNone, 8},
    {8, 32, 8, 128, 1, D::kCluster, K::kNone, 4},
    {16, 32, 8, 128, 1, D::kCluster, K::kNone, 2},
    {17, 32, 8, 128, 1, D::kRanges, K::kNone, 0},
    {256, 32, 8, 128, 1, D::kRanges, K::kNone, 0},
    // Up to eight queries a unit: two tokens of four heads; wide units have sixteen.
    {1, 32, 8, 128, 2, D::kCluster, K::kNone, 8},
    {1, 32, 8, 128, 4, D::kCluster, K::kNone, 8},
    {1, 32, 8, 128, 5, D::kCluster, K::kPrefill128, 8},
    // Prompts, beside which decoding rows have their own kernel.
    {4, 32, 8, 128, 1024, D::kCluster, K::kPrefill128, 8},
    {64, 32, 8, 128, 8192, D::kRanges, K::kPrefill128, 0},
    {1, 16, 2, 64, 1024, D::kCluster, K::kPrefill64, 8},
    // Heads that Hopper's prompts or its decoding rows do not have.
    {1, 10, 2, 256, 1, D::kCluster, K::kNone, 8},
    {1, 10, 2, 256, 500, D::kCluster, K::kMma256, 8},
    {1, 10, 2, 96, 1, D::kPortable, K::kNone, 0},
    {1, 10, 2, 96, 500, D::kPortable, K::kMma128, 0},
    {1, 160, 1, 128, 500, D::kCluster, K::kMma128, 8},  // a group wider than a unit of prompts
};
constexpr AttentionCase kDeterministic[] = {
    {1, 32, 8, 128, 1, D::kClusterDeterministic, K::kNone, 8},
    {8, 32, 8, 128, 1, D::kClusterDeterministic, K::kNone, 4},
    {17, 32, 8, 128, 1, D::kRangesDeterministic, K::kNone, 0},
    {1, 32, 8, 128, 8192, D::kRangesDeterministic, K::kNone, 0},  // prompts, too: the same bits
    {1, 10, 2, 96, 8192, D::kPortable, K::kNone, 0},
};
constexpr AttentionCase kA100[] = {
    {1, 32, 8, 128, 1, D::kPortable, K::kNone, 0},
    {1, 32, 8, 128, 4, D::kPortable, K::kNone, 0},
    {1, 32, 8, 128, 5, D::kPortable, K::kMma128, 0},
    {1, 10, 2, 256, 64, D::kPortable, K::kMma256, 0},
    {1, 10, 2, 48, 64, D::kPortable, K::kMma64, 0},
};
// clang-format on

TEST(ChooseAttention, PagesOnAnH100) { check(kH100, attention_h100()); }
TEST(ChooseAttention, PagesInDeterministicMode) { check(kDeterministic, attention_deterministic()); }
TEST(ChooseAttention, PagesOnAnA100) { check(kA100, attention_a100()); }

TEST(ChooseAttention, EightBlocksThatHaveAMultiprocessorEach) {
  EXPECT_TRUE(choose_attention(pages(2, 32, 8, 128), 1, attention_h100()).deep) << "128 blocks";
  EXPECT_FALSE(choose_attention(pages(3, 32, 8, 128), 1, attention_h100()).deep) << "192 blocks";
}

TEST(ChooseAttention, WhatTensorCoresCannotRead) {
  const AttentionFacts f = attention_h100();
  AttentionArgs a = pages(1, 32, 8, 128);
  a.kv_f32 = true;
  expect(choose_attention(a, 1, f), D::kNone, K::kPlain, 0, "a cache of float32");
  a = pages(1, 32, 8, 128), a.q = reinterpret_cast<const void*>(uintptr_t{8});
  expect(choose_attention(a, 1, f), D::kNone, K::kPlain, 0, "queries that are not aligned");
  a = pages(1, 32, 8, 128), a.q_token = 4100;
  expect(choose_attention(a, 1, f), D::kNone, K::kPlain, 0, "rows that are not aligned");
  expect(choose_attention(pages(1, 4, 2, 320), 1, f), D::kNone, K::kPlain, 0, "320 values");
  a = pages(1, 32, 8, 128), a.block_size = 8;
  expect(choose_attention(a, 1, f), D::kNone, K::kMma128, 0, "blocks of 8 tokens");
  a.block_size = 16;
  expect(choose_attention(a, 1, f), D::kPortable, K::kNone, 0, "blocks of 16 tokens");
  expect(choose_attention(a, 500, f), D::kPortable, K::kMma128, 0, "a prompt over blocks of 16 tokens");
  a = pages(1, 32, 8, 128), a.q_f32 = true;
  expect(choose_attention(a, 500, f), D::kCluster, K::kMma128, 8, "a prompt of float32 queries");
}

TEST(ChooseAttention, CachesOfCodes) {
  for (const KvCode code : {KvCode::kInt8, KvCode::kE4m3}) {
    AttentionArgs a = pages(64, 32, 8, 128);
    a.code = code;
    expect(choose_attention(a, 1, attention_h100()), D::kRanges, K::kNone, 0, "decoding rows");
    expect(choose_attention(a, 1, attention_a100()), D::kPortable, K::kNone, 0, "decoding rows on an A100");
    expect(choose_attention(a, 512, attention_deterministic()), D::kPortable, K::kNone, 0, "all rows");
    // Prompts become bfloat16 pages where it is known how much context they have and there is room.
    expect(choose_attention(a, 8192, attention_h100()), D::kRanges, K::kMma128, 0, "a prompt of unknown context");
    a.long_context = 8192;
    expect(choose_attention(a, 8192, attention_h100()), D::kRanges, K::kPrefillWidened, 0, "a prompt");
    expect(choose_attention(a, 8192, attention_a100()), D::kPortable, K::kMma128, 0, "a prompt on an A100");
    a.long_context = 300000;
    expect(choose_attention(a, 8192, attention_h100()), D::kRanges, K::kMma128, 0, "prompts without room");
    a.q_f32 = true;
    expect(choose_attention(a, 1, attention_h100()), D::kNone, K::kPlain, 0, "queries of float32");
    a = pages(1, 16, 2, 64), a.code = code;
    expect(choose_attention(a, 1, attention_h100()), D::kCluster, K::kNone, 8, "few units");
    a = pages(1, 10, 2, 256), a.code = code;
    expect(choose_attention(a, 1, attention_h100()), D::kPortable, K::kNone, 0, "heads of 256 values");
    a = pages(1, 32, 8, 128), a.code = code, a.block_size = 16;
    expect(choose_attention(a, 1, attention_h100()), D::kPortable, K::kNone, 0, "blocks of 16 tokens");
    a = pages(1, 8, 2, 96), a.code = code, a.long_context = 8192;
    expect(choose_attention(a, 8192, attention_h100()), D::kPortable, K::kMma128, 0, "heads of 96 values");
  }
}

TEST(ChooseAttention, LatentRows) {
  for (const int longest : {1, 4096}) {
    const std::string what = "longest " + std::to_string(longest);
    expect(choose_attention(latent_pages(8, 128), longest, attention_h100()), D::kNone, K::kLatent, 0, what);
    expect(choose_attention(latent_pages(8, 128), longest, attention_deterministic()), D::kNone, K::kLatent, 0, what);
    expect(choose_attention(latent_pages(8, 128), longest, attention_a100()), D::kNone, K::kMmaLatent, 0, what);
  }
  AttentionArgs a = latent_pages(8, 128);
  a.out_f32 = true;
  expect(choose_attention(a, 1, attention_h100()), D::kNone, K::kMmaLatent, 0, "results of float32");
  a = latent_pages(8, 128), a.dk = 584;
  expect(choose_attention(a, 1, attention_h100()), D::kNone, K::kPlain, 0, "584 values");
}

TEST(ChooseAttention, SegmentsOfPictures) {
  AttentionArgs a = pages(2, 16, 16, 72);
  const DeviceFacts f = h100();
  const auto chosen = [&](int64_t tokens, bool aligned, bool rotated, const DeviceFacts& facts) {
    return static_cast<int>(choose_segments(a, tokens, aligned, rotated, facts));
  };
  EXPECT_EQ(chosen(1024, true, true, f), static_cast<int>(K::kSegments));
  EXPECT_EQ(chosen(100, true, true, f), static_cast<int>(K::kMma128)) << "too few to fill the GPU";
  EXPECT_EQ(chosen(1024, true, false, f), static_cast<int>(K::kMma128));
  EXPECT_EQ(chosen(1024, false, true, f), static_cast<int>(K::kPlain));
  EXPECT_EQ(chosen(1024, true, true, deterministic()), static_cast<int>(K::kMma128));
  EXPECT_EQ(chosen(1024, true, true, a100()), static_cast<int>(K::kMma128));
  a.dk = a.dv = 64;
  EXPECT_EQ(chosen(100, true, true, f), static_cast<int>(K::kMma64));
}

}  // namespace
}  // namespace tern::cuda::choice_test
