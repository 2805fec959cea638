// Sampling through the engine: what is said does not depend on what runs beside it, and the rarer wishes of requests.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

std::vector<Request> sampled_requests() {
  std::mt19937 rng(12);
  std::vector<Request> list;
  for (RequestId id = 1; id <= 24; ++id) {
    std::vector<int32_t> prompt(20 + rng() % 60);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = i < 16 ? 7 : static_cast<int32_t>(rng() % 97);
    Request r = Harness::request(id, prompt, 10 + static_cast<int>(rng() % 40));
    r.ignore_eos = true;
    r.sampling.temperature = id % 3 == 0 ? 3.0f : 1.0f;
    r.sampling.top_p = id % 2 ? 0.9f : 1.0f;
    r.sampling.top_k = id % 4 == 0 ? 20 : 0;
    r.sampling.min_p = id % 5 == 0 ? 0.02f : 0.0f;
    r.sampling.seed = id * 1000003;
    r.sampling.logprobs = static_cast<int32_t>(id % 6);
    if (id % 3 == 1) r.sampling.repetition_penalty = 1.2f, r.sampling.presence_penalty = 0.5f;
    if (id % 7 == 2) r.sampling.logit_bias = {{5, 2.0f}, {6, -2.0f}};
    list.push_back(std::move(r));
  }
  return list;
}

void expect_same(const Answer& a, const Answer& b, RequestId id) {
  EXPECT_EQ(a.ids, b.ids) << "request " << id;
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    ASSERT_EQ(a.tokens[i].logprobs.size(), b.tokens[i].logprobs.size());
    for (size_t k = 0; k < a.tokens[i].logprobs.size(); ++k) {
      EXPECT_EQ(a.tokens[i].logprobs[k].id, b.tokens[i].logprobs[k].id);
      EXPECT_EQ(a.tokens[i].logprobs[k].logprob, b.tokens[i].logprobs[k].logprob);
    }
  }
}

TEST(EngineSampling, DoesNotDependOnTheCompany) {
  std::map<RequestId, Answer> alone;
  for (const Request& r : sampled_requests()) {
    Harness h(Harness::small(64, 1, 160));
    ASSERT_TRUE(h->submit(r).ok());
    h.read(1);
    alone[r.id] = h.answers[r.id];
    EXPECT_EQ(alone[r.id].ids.size(), static_cast<size_t>(r.max_tokens));
    EXPECT_EQ(alone[r.id].tokens[0].logprobs.size(), static_cast<size_t>(r.sampling.logprobs) + 1);
    EXPECT_EQ(alone[r.id].tokens[0].logprobs[0].id, alone[r.id].ids[0]);
  }
  uint64_t preemptions = 0, hits = 0;
  // Ranks draw the rows of their slots, with penalties and scores of their own.
  for (const auto& [blocks, budget, ranks] :
       {std::tuple{120, 64, 1}, {24, 32, 1}, {30, 9, 1}, {120, 64, 2}, {24, 32, 3}, {30, 9, 4}}) {
    SCOPED_TRACE(ranks);
    Harness h(Harness::small(blocks, 8, budget), FakeOptions{}, ranks);
    for (const Request& r : sampled_requests()) ASSERT_TRUE(h->submit(r).ok());
    h.read(24);
    for (auto& [id, a] : h.answers) expect_same(a, alone[id], id);
    preemptions += h->stats().preemptions;
    hits += h->stats().prefix_hits;
  }
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(hits, 0u);
}

TEST(EngineSampling, PromptLogprobsInChunks) {
  std::vector<std::vector<TokenLogprob>> want;
  for (const auto& [budget, ranks] : {std::pair{160, 1}, {64, 1}, {9, 1}, {160, 2}, {64, 3}, {9, 2}}) {
    EngineConfig c = Harness::small(64, 4, budget);
    c.prompt_logit_rows = budget == 64 ? 5 : 256;
    Harness h(c, FakeOptions{}, ranks);
    Request r = Harness::request(1, {}, 3), plain = Harness::request(2, {4, 5, 6}, 30);
    for (int i = 0; i < 50; ++i) r.prompt.push_back((i * 13) % 97);
    r.sampling.prompt_logprobs = 2;
    r.sampling.logprobs = 0;
    plain.ignore_eos = true;
    Request other = r;
    other.id = 3;
    for (Request* q : {&r, &plain, &other}) ASSERT_TRUE(h->submit(*q).ok());
    h.read(3);
    for (RequestId id : {1, 3}) {
      const auto& got = h.answers[id].prompt_logprobs;
      ASSERT_EQ(got.size(), 49u);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].size(), 3u);
        EXPECT_EQ(got[i][0].id, r.prompt[i + 1]);
        EXPECT_GE(got[i][1].logprob, got[i][2].logprob);
        EXPECT_LE(got[i][0].logprob, got[i][1].logprob);
        EXPECT_LT(got[i][1].logprob, 0.0f);
        // The most likely id after the prefix is the fake model's next token.
        const std::vector<int32_t> prefix(r.prompt.begin(), r.prompt.begin() + static_cast<int64_t>(i) + 1);
        EXPECT_EQ(got[i][1].id, h.fake().continuation(prefix, 1, -1)[0]);
      }
      if (want.empty()) want = got;
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i][0].logprob, want[i][0].logprob);
    }
    EXPECT_EQ(h.answers[2].ids, h.fake().continuation({4, 5, 6}, 30, -1));
    EXPECT_EQ(h.answers[1].last.cached_tokens, 0);
  }
}

TEST(EngineSampling, RepetitionStopsEarly) {
  EngineConfig c = Harness::small();
  c.early_stop = true, c.early_stop_window = 6, c.early_stop_threshold = 0.5;
  Harness h(c);
  Request sure = Harness::request(1, {1, 2}, 50), unsure = Harness::request(2, {1, 2}, 50);
  sure.ignore_eos = unsure.ignore_eos = true;
  sure.sampling.temperature = 0.2f, sure.sampling.top_p = 1.0f;
  unsure.sampling.temperature = 5.0f, unsure.sampling.top_p = 1.0f;
  ASSERT_TRUE(h->submit(sure).ok());
  ASSERT_TRUE(h->submit(unsure).ok());
  h.read(2);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kStop);
  EXPECT_LT(h.answers[1].ids.size(), 50u);
  EXPECT_GE(h.answers[1].ids.size(), 6u);
  EXPECT_EQ(h.answers[2].last.finish, FinishReason::kLength);
}

TEST(EngineSampling, FirstTokenIsNotTheEndWithMinTokens) {
  Harness h(Harness::small());
  // A prompt that the fake model ends at once.
  std::vector<int32_t> prompt{0, 1};
  while (h.fake().continuation(prompt, 1, -1)[0] != 0) ++prompt[0], prompt[0] %= 97, prompt[1] += prompt[0] == 0;
  Request ends = Harness::request(1, prompt, 5), goes_on = Harness::request(2, prompt, 5);
  goes_on.sampling.min_tokens = 1;
  ASSERT_TRUE(h->submit(ends).ok());
  ASSERT_TRUE(h->submit(goes_on).ok());
  h.read(2);
  EXPECT_EQ(h.answers[1].ids, std::vector<int32_t>{0});
  EXPECT_EQ(h.answers[1].last.stop_token, 0);
  EXPECT_NE(h.answers[2].ids[0], 0);
}

}  // namespace
}  // namespace tern::engine
