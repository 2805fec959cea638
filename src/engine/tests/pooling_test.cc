// Pooling models: a request's answer is the vector of its prompt's last token, or one of each token, whatever chunks,
// prefix hits, preemptions and ranks it went through.
#include <gtest/gtest.h>

#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

constexpr int kWidth = 3;

std::vector<int32_t> prompt_of(int length, int from = 1) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back(1 + (from * 31 + i * 7) % 90);
  return ids;
}

Request pooled(RequestId id, std::vector<int32_t> prompt, PooledRows rows = PooledRows::kLast) {
  Request r = Harness::request(id, std::move(prompt), 1);
  r.pooled = rows;
  return r;
}

std::vector<float> wanted(const std::vector<int32_t>& prompt, PooledRows rows) {
  const auto row = [&](size_t n) { return FakeChain::vector_of(std::span(prompt).first(n), kWidth); };
  if (rows == PooledRows::kLast) return row(prompt.size());
  if (rows == PooledRows::kFirst) return row(1);
  std::vector<float> all, mean;
  std::vector<double> sum(kWidth);
  for (size_t n = 1; n <= prompt.size(); ++n) {
    const std::vector<float> values = row(n);
    all.insert(all.end(), values.begin(), values.end());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
  }
  if (rows == PooledRows::kAll) return all;
  for (const double v : sum) mean.push_back(static_cast<float>(v / static_cast<double>(prompt.size())));
  return mean;
}

void expect_pooled(const Harness& h, RequestId id, const std::vector<int32_t>& prompt, PooledRows rows) {
  const Answer& a = h.answers.at(id);
  EXPECT_EQ(a.last.finish, FinishReason::kStop) << a.last.error.message;
  EXPECT_EQ(a.last.pooled, wanted(prompt, rows)) << "request " << id;
  EXPECT_TRUE(a.ids.empty());
  EXPECT_EQ(a.deltas, 1);
  EXPECT_EQ(a.last.prompt_tokens, static_cast<int32_t>(prompt.size()));
}

struct Shape {
  int blocks, seqs, budget;
  bool prefix;
};

class Pooling : public ::testing::TestWithParam<Shape> {};

// Twenty requests over few blocks: chunks, prefix hits of the second ten, preemptions where blocks are short.
TEST_P(Pooling, VectorsDoNotDependOnTheWay) {
  const Shape& s = GetParam();
  EngineConfig config = Harness::small(s.blocks, s.seqs, s.budget);
  config.scheduler.prefix_caching = s.prefix;
  config.prompt_logit_rows = 5;  // all rows of a prompt come in chunks of these
  Harness h(config, FakeOptions{.pooled = kWidth});
  std::vector<std::pair<std::vector<int32_t>, PooledRows>> asked;
  for (int i = 0; i < 20; ++i) {
    const int n = i % 10;
    constexpr PooledRows kRows[] = {PooledRows::kLast, PooledRows::kMean, PooledRows::kAll, PooledRows::kLast,
                                    PooledRows::kFirst};
    asked.emplace_back(prompt_of(n == 0 ? 1 : 13 * n + 1, n), kRows[n % 5]);
    ASSERT_TRUE(h->submit(pooled(static_cast<RequestId>(i + 1), asked.back().first, asked.back().second)).ok());
    if (i == 9) h.read(10);
  }
  h.read(20);
  int64_t cached = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    expect_pooled(h, i + 1, asked[i].first, asked[i].second);
    const int32_t hit = h.answers.at(i + 1).last.cached_tokens;
    cached += hit;
    if (asked[i].second != PooledRows::kLast) {
      EXPECT_EQ(hit, 0) << "rows are needed that a hit would skip";
    }
  }
  if (!s.prefix) {
    EXPECT_EQ(cached, 0);
  } else if (s.blocks >= 64) {  // fewer are soon somebody else's
    EXPECT_GT(cached, 0);
  }
  const EngineStats stats = h->stats();
  EXPECT_EQ(stats.generated_tokens, 0u);
  EXPECT_EQ(stats.open_tokens, 0);
  EXPECT_EQ(stats.running, 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Pooling,
                         ::testing::Values(Shape{64, 8, 64, true}, Shape{64, 8, 64, false}, Shape{24, 6, 16, true},
                                           Shape{200, 8, 160, true}, Shape{24, 1, 8, false}));

TEST(PoolingEngine, RanksGiveTheSameVector) {
  Harness h(Harness::small(), FakeOptions{.pooled = kWidth}, 2);
  for (RequestId id = 1; id <= 6; ++id) {
    const auto rows = static_cast<PooledRows>(id % 4);
    ASSERT_TRUE(h->submit(pooled(id, prompt_of(static_cast<int>(17 * id), static_cast<int>(id)), rows)).ok());
  }
  h.read(6);
  for (RequestId id = 1; id <= 6; ++id) {
    expect_pooled(h, id, prompt_of(static_cast<int>(17 * id), static_cast<int>(id)), static_cast<PooledRows>(id % 4));
  }
}

TEST(PoolingEngine, WhatIsNoNumberEndsItsRequestAlone) {
  EngineConfig config = Harness::small(64, 8, 16);
  config.prompt_logit_rows = 4;
  Harness h(config, FakeOptions{.nan_token = 95, .pooled = kWidth});
  std::vector<int32_t> last = prompt_of(40), middle = prompt_of(40, 2), fine = prompt_of(40, 3);
  last.back() = 95, middle[20] = 95, fine[20] = 95;
  ASSERT_TRUE(h->submit(pooled(1, last)).ok());
  ASSERT_TRUE(h->submit(pooled(2, middle, PooledRows::kAll)).ok());
  ASSERT_TRUE(h->submit(pooled(3, fine)).ok());  // nobody reads the row of its token 20
  ASSERT_TRUE(h->submit(pooled(4, prompt_of(50, 4), PooledRows::kAll)).ok());
  ASSERT_TRUE(h->submit(pooled(5, middle, PooledRows::kMean)).ok());
  ASSERT_TRUE(h->submit(pooled(6, middle, PooledRows::kFirst)).ok());
  h.read(6);
  for (const RequestId id : {1, 2, 5}) {
    EXPECT_EQ(h.answers.at(id).last.finish, FinishReason::kError);
    EXPECT_NE(h.answers.at(id).last.error.message.find("not a number"), std::string::npos);
    EXPECT_TRUE(h.answers.at(id).last.pooled.empty());
  }
  expect_pooled(h, 3, fine, PooledRows::kLast);
  expect_pooled(h, 4, prompt_of(50, 4), PooledRows::kAll);
  expect_pooled(h, 6, middle, PooledRows::kFirst);
}

TEST(PoolingEngine, AbortsEndAtOnceAndLeaveNothingBehind) {
  std::atomic<int64_t> slow{5'000'000};
  Harness h(Harness::small(64, 4, 8), FakeOptions{.pooled = kWidth, .step_ns = &slow});
  for (RequestId id = 1; id <= 8; ++id) ASSERT_TRUE(h->submit(pooled(id, prompt_of(100, static_cast<int>(id)))).ok());
  for (RequestId id = 1; id <= 8; id += 2) h->abort(id);
  slow = 0;
  h.read(8);
  for (RequestId id = 1; id <= 8; ++id) {
    if (id % 2 == 0) {
      expect_pooled(h, id, prompt_of(100, static_cast<int>(id)), PooledRows::kLast);
    } else {
      EXPECT_EQ(h.answers.at(id).last.finish, FinishReason::kAbort);
    }
  }
}

TEST(PoolingEngine, RefusesWhatAsksForTokens) {
  Harness pools(Harness::small(), FakeOptions{.pooled = kWidth}), generates(Harness::small(), FakeOptions{});
  Request scored = pooled(1, prompt_of(5));
  scored.sampling.prompt_logprobs = 0;
  ASSERT_TRUE(pools->submit(std::move(scored)).ok());
  ASSERT_TRUE(pools->submit(pooled(2, prompt_of(160))).ok());  // no room within the context
  ASSERT_TRUE(generates->submit(pooled(1, prompt_of(5), PooledRows::kAll)).ok());
  pools.read(2), generates.read(1);
  EXPECT_EQ(pools.answers.at(1).last.error.param, "prompt_logprobs");
  EXPECT_EQ(pools.answers.at(2).last.error.code, ErrorCode::kTooLarge);
  EXPECT_EQ(generates.answers.at(1).last.error.param, "pooled");
}

}  // namespace
}  // namespace tern::engine
