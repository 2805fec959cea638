#include "ops/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/draw_facts.h"
#include "ops/logits.h"
#include "ops/sample_random.h"

namespace tern::ops {
namespace {

const device::Stream kStream{};

TEST(Philox, PublishedVectors) {
  using A4 = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (A4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (A4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (A4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_NE(random_bits(1, 2, 0), random_bits(1, 2, 1));
  EXPECT_NE(random_bits(1, 2, 0), random_bits(2, 2, 0));
  EXPECT_NE(random_bits(1ull << 40, 2, 0), random_bits(0, 2, 0));
}

// Slot arrays and one logits row in plain memory.
struct Fixture {
  explicit Fixture(std::vector<float> logits, int slots = 2)
      : base(std::move(logits)), x(base), params(static_cast<size_t>(slots)), vocab(static_cast<int64_t>(base.size())) {
    const auto n = static_cast<size_t>(slots);
    seen.resize(n * static_cast<size_t>(seen_words(vocab)));
    counts.resize(n * base.size());
    for (auto* v : {&stop, &bias, &bad}) v->resize(n * 8);
    values.resize(n * 8);
    arrays = {slots, vocab, params.data(), seen.data(), counts.data(), 8,
              8,     8,     stop.data(),   bias.data(), values.data(), bad.data()};
    workspace.resize(sample_workspace(kStream, vocab) + 64);
  }
  LogitsParams rows() { return {tensor2(x.data(), DType::kF32, 1, vocab), &row, 1, arrays}; }
  void* space() {
    auto at = reinterpret_cast<uintptr_t>(workspace.data());
    return reinterpret_cast<void*>((at + 63) / 64 * 64);
  }
  int32_t draw(int32_t position) {
    row.position = position;
    SampleParams p;
    p.rows = rows();
    p.ids = tensor1(&id, DType::kI32, 1), p.status = tensor1(&status, DType::kI32, 1);
    p.probs = tensor1(&prob, DType::kF32, 1);
    p.workspace = space();
    EXPECT_TRUE(sample(p, kStream).ok());
    EXPECT_EQ(status, kSampleOk);
    return id;
  }
  void temperature(float t) { params[1].temperature = t, params[1].scale = 1.0f / t; }

  std::vector<float> base, x;
  std::vector<SlotParams> params;
  int64_t vocab;
  std::vector<uint64_t> seen;
  std::vector<int32_t> counts, stop, bias, bad;
  std::vector<float> values;
  SlotArrays arrays;
  SampleRow row{0, 1, 0, 0, 0, -1};
  int32_t id = 0, status = 0;
  float prob = 0;
  std::vector<char> workspace;
};

std::vector<float> ladder() {
  std::vector<float> x(40);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 17) % 40) * 0.12f - 2.0f;
  x[7] = x[8] = 1.1f;
  return x;
}

std::vector<double> softmax(const std::vector<double>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  std::vector<double> p(x.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += p[i] = std::exp(x[i] - top);
  for (double& v : p) v /= sum;
  return p;
}

// What stays after min-p, top-k, top-p, as probabilities, by definition in float64.
std::vector<double> truncated(std::vector<double> p, double min_p, size_t top_k, double top_p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  const double most = p[order[0]];
  for (double& v : p) v = v < most * min_p ? 0 : v;
  double base = 1;
  if (top_k > 0) {
    for (size_t i = top_k; i < order.size(); ++i) p[order[i]] = 0;
    base = std::accumulate(p.begin(), p.end(), 0.0);
  }
  double above = 0, run = 0;
  const std::vector<double> before = p;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && before[order[i]] < before[order[i - 1]]) above = run;
    run += before[order[i]];
    if (top_p < 1 && above > 0 && above >= top_p * base) p[order[i]] = 0;
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
  return p;
}

// Chi-square of n draws against p; the draws are fixed by the seed, so the verdict is too. 4.5 sigma of slack.
void expect_fits(Fixture& f, const std::vector<double>& p, int n = 40000) {
  std::vector<int> hits(p.size());
  for (int i = 0; i < n; ++i) ++hits[static_cast<size_t>(f.draw(i))];
  double chi = 0;
  int cells = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(hits[i], 0) << "token " << i << " should never come";
      continue;
    }
    const double expected = p[i] * n;
    chi += (hits[i] - expected) * (hits[i] - expected) / expected;
    ++cells;
  }
  const double freedom = cells - 1;
  EXPECT_LT(chi, freedom + 4.5 * std::sqrt(2 * freedom) + 6) << cells << " tokens stay";
  if (cells > 8) {
    EXPECT_GT(chi, freedom - 4.5 * std::sqrt(2 * freedom));
  }
}

struct Cut {
  float temperature, min_p;
  int32_t top_k;
  float top_p;
};

class Truncation : public testing::TestWithParam<Cut> {};

TEST_P(Truncation, DrawsFromTheExactDistribution) {
  const Cut c = GetParam();
  Fixture f(ladder());
  f.params[1].seed = 20240601;
  f.temperature(c.temperature);
  f.params[1].min_p = c.min_p, f.params[1].top_k = c.top_k, f.params[1].top_p = c.top_p;
  std::vector<double> x(f.base.begin(), f.base.end());
  for (double& v : x) v /= c.temperature;
  expect_fits(f, truncated(softmax(x), c.min_p, c.top_k > 0 ? static_cast<size_t>(c.top_k) : 0, c.top_p));
}

TEST_P(Truncation, FactsAreThoseOfTheDistribution) {
  const Cut c = GetParam();
  Fixture f(ladder());
  DrawFactsRow row;
  row.scale = 1.0f / c.temperature, row.min_p = c.min_p, row.top_k = c.top_k, row.top_p = c.top_p, row.out = 1;
  float entropy[2] = {-5, -5};
  uint32_t kept[4] = {9, 9, 9, 9};
  DrawFactsParams p;
  p.logits = f.rows().logits, p.rows = &row, p.count = 1, p.workspace = f.space();
  p.entropy = tensor1(entropy, DType::kF32, 2), p.kept = tensor2(kept, DType::kI32, 2, 2);
  ASSERT_TRUE(draw_facts(p, kStream).ok());
  std::vector<double> x(f.base.begin(), f.base.end());
  for (double& v : x) v /= c.temperature;
  double want = 0;
  for (const double v : softmax(x)) want -= v * std::log(v);
  EXPECT_NEAR(entropy[1], want, 1e-5);
  const auto left = truncated(softmax(x), c.min_p, c.top_k > 0 ? static_cast<size_t>(c.top_k) : 0, c.top_p);
  for (size_t i = 0; i < left.size(); ++i) EXPECT_EQ(kept[2 + i / 32] >> (i % 32) & 1, left[i] > 0 ? 1u : 0u) << i;
  EXPECT_EQ(kept[3] >> (left.size() - 32), 0u) << "no bits behind the vocabulary";
  EXPECT_TRUE(entropy[0] == -5 && kept[0] == 9 && kept[1] == 9);
}

INSTANTIATE_TEST_SUITE_P(All, Truncation,
                         testing::Values(Cut{1, 0, 0, 1}, Cut{0.5f, 0, 0, 1}, Cut{5, 0, 0, 1}, Cut{1, 0, 0, 0.8f},
                                         Cut{1, 0, 0, 0.35f}, Cut{2, 0, 0, 0.95f}, Cut{1, 0, 5, 1}, Cut{1, 0, 1, 1},
                                         Cut{1, 0, 40, 1}, Cut{1, 0, -1, 1}, Cut{1, 0.2f, 0, 1}, Cut{1, 0.9f, 0, 1},
                                         Cut{1, 0, 10, 0.6f}, Cut{1, 0.1f, 20, 0.7f}, Cut{0.7f, 0.05f, 0, 0.9f},
                                         Cut{1, 0, 0, 0.0f}, Cut{1, 0, 0, 0.02f}));

TEST(Processors, PenaltiesBiasMinTokensAndBadWordsFollowTheOrder) {
  Fixture f(ladder());
  SlotParams& s = f.params[1];
  s.seed = 5, s.penalised = 1;
  s.repetition = 1.3f, s.frequency = 0.4f, s.presence = 0.25f;
  s.bias_count = 2, f.bias[8] = 3, f.bias[9] = 11, f.values[8] = 2.0f, f.values[9] = -1.0f;
  s.bad_count = 1, f.bad[8] = 20;
  s.min_tokens = 2, s.stop_count = 1, f.stop[8] = 30;
  f.temperature(0.8f);
  const int32_t prompt[] = {1, 2, 3, 3}, output[] = {3, 5, 5, 5};
  ASSERT_TRUE(slot_mark({f.arrays, 1, prompt, 4, false}, kStream).ok());
  ASSERT_TRUE(slot_mark({f.arrays, 1, output, 4, true}, kStream).ok());

  std::vector<double> x(f.base.begin(), f.base.end());
  x[3] += 2, x[11] -= 1;
  x[30] = -1e10;
  for (size_t id : {1, 2, 3, 5}) x[id] = x[id] < 0 ? x[id] * 1.3 : x[id] / 1.3;
  x[3] -= 0.4 + 0.25, x[5] -= 3 * 0.4 + 0.25;
  for (double& v : x) v /= 0.8;
  x[20] = -1e10;

  f.row.generated = 1;
  ASSERT_TRUE(logit_bias(f.rows(), kStream).ok());
  ASSERT_TRUE(logit_min_tokens(f.rows(), kStream).ok());
  ASSERT_TRUE(logit_penalties(f.rows(), kStream).ok());
  ASSERT_TRUE(logit_bad_words(f.rows(), kStream).ok());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(f.x[i] * s.scale, x[i], 1e-5 + 1e-6 * std::abs(x[i])) << i;
  s.penalised = 0;  // the draws below are of one step, not of a growing output
  expect_fits(f, truncated(softmax(x), 0, 0, 1));

  // Long enough: the stop id is free again.
  f.x = f.base;
  f.row.generated = 2;
  ASSERT_TRUE(logit_min_tokens(f.rows(), kStream).ok());
  EXPECT_EQ(f.x, f.base);
}

TEST(Processors, SampledTokensCountAndResetForgets) {
  Fixture f(ladder());
  f.params[1].penalised = 1, f.params[1].greedy = 1, f.params[1].presence = 2.0f;
  const int32_t first = f.draw(0);
  EXPECT_EQ(f.counts[f.base.size() + static_cast<size_t>(first)], 1);
  ASSERT_TRUE(logit_penalties(f.rows(), kStream).ok());
  EXPECT_FLOAT_EQ(f.x[static_cast<size_t>(first)], f.base[static_cast<size_t>(first)] - 2.0f);
  ASSERT_TRUE(slot_reset(f.arrays, 1, kStream).ok());
  EXPECT_TRUE(std::all_of(f.counts.begin(), f.counts.end(), [](int32_t c) { return c == 0; }));
  EXPECT_TRUE(std::all_of(f.seen.begin(), f.seen.end(), [](uint64_t w) { return w == 0; }));
}

TEST(Processors, MasksExcludeIds) {
  Fixture f(ladder());
  std::vector<int32_t> bits{static_cast<int32_t>(0x00f0u), 0x3};
  f.row.mask_row = 0;
  ASSERT_TRUE(logit_mask({f.rows(), tensor2(bits.data(), DType::kI32, 1, 2)}, kStream).ok());
  for (size_t i = 0; i < f.x.size(); ++i) {
    const bool open = (i >= 4 && i < 8) || i == 32 || i == 33;
    EXPECT_EQ(f.x[i] > -1e30f, open) << i;
  }
}

TEST(Sample, ProbabilityIsOfTheSoftmax) {
  Fixture f(ladder());
  f.params[1].top_p = 0.5f;
  f.temperature(2.0f);
  std::vector<double> x(f.base.begin(), f.base.end());
  for (double& v : x) v /= 2;
  const auto p = softmax(x);
  for (int i = 0; i < 20; ++i) {
    const int32_t id = f.draw(i);
    EXPECT_NEAR(f.prob, p[static_cast<size_t>(id)], 1e-6);
  }
}

TEST(Sample, RefusesWrongRows) {
  Fixture f(ladder());
  f.row.slot = 2;
  EXPECT_FALSE(logit_bias(f.rows(), kStream).ok());
  SampleParams p;
  p.rows = f.rows();
  p.ids = p.status = tensor1(&f.id, DType::kI32, 1);
  p.workspace = f.workspace.data();
  EXPECT_FALSE(sample(p, kStream).ok());
  f.row = {5, 0, 0, 0, 0, -1};
  EXPECT_FALSE(sample(p, kStream).ok());
  const int32_t outside = 40;
  EXPECT_FALSE(slot_mark({f.arrays, 0, &outside, 1, false}, kStream).ok());
}

TEST(DrawFacts, RowsWithoutADistributionAndRowsOutOfRange) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const auto facts = [](std::vector<float> logits, DrawFactsRow row, float& entropy, uint32_t& kept) {
    Fixture f(std::move(logits));
    DrawFactsParams p;
    p.logits = f.rows().logits, p.rows = &row, p.count = 1, p.workspace = f.space();
    p.entropy = tensor1(&entropy, DType::kF32, 1), p.kept = tensor2(&kept, DType::kI32, 1, 1);
    return draw_facts(p, kStream);
  };
  float entropy = 0;
  uint32_t kept = 0;
  ASSERT_TRUE(facts({1, std::numeric_limits<float>::quiet_NaN(), 2}, {}, entropy, kept).ok());
  EXPECT_TRUE(std::isnan(entropy) && kept == 0);
  ASSERT_TRUE(facts({kNone, kNone}, {}, entropy, kept).ok());
  EXPECT_TRUE(std::isnan(entropy) && kept == 0);
  ASSERT_TRUE(facts({1, -kNone, 2}, {}, entropy, kept).ok());
  EXPECT_TRUE(entropy == 0 && kept == 2);
  ASSERT_TRUE(facts({kNone, 3, kNone, 3}, {}, entropy, kept).ok());
  EXPECT_NEAR(entropy, std::log(2.0), 1e-6);
  EXPECT_EQ(kept, 10u);
  ASSERT_TRUE(facts({kNone, 3, kNone, 3}, {.greedy = 1}, entropy, kept).ok());
  EXPECT_EQ(kept, 2u);
  EXPECT_FALSE(facts({1, 2}, {.logit_row = 1}, entropy, kept).ok());
  EXPECT_FALSE(facts({1, 2}, {.out = 1}, entropy, kept).ok());
}

}  // namespace
}  // namespace tern::ops
