// What tokens were drawn from (--enable-entropy, --enable-keep-sampling-mask), through the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

std::vector<Request> mixed_requests() {
  std::mt19937 rng(21);
  std::vector<Request> list;
  for (RequestId id = 1; id <= 20; ++id) {
    std::vector<int32_t> prompt(20 + rng() % 60);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = i < 16 ? 7 : static_cast<int32_t>(rng() % 97);
    Request r = Harness::request(id, prompt, 10 + static_cast<int>(rng() % 40));
    r.ignore_eos = true;
    r.sampling.temperature = id % 5 == 0 ? 0.0f : 2.0f;
    r.sampling.top_p = id % 2 == 0 ? 0.8f : 1.0f;
    r.sampling.top_k = id % 3 == 0 ? 6 : 0;
    r.sampling.seed = id * 31;
    r.sampling.logprobs = id % 4 == 0 ? 1 : -1;
    if (id % 7 == 0) r.sampling.repetition_penalty = 1.3f;
    list.push_back(std::move(r));
  }
  return list;
}

TEST(DrawFacts, ChangeNoAnswerAndDependOnNothingBeside) {
  EngineConfig config = Harness::small(64, 1, 160);
  std::map<RequestId, Answer> bare, alone;
  for (const bool wanted : {false, true}) {
    config.entropy = config.kept_tokens = wanted;
    Harness h(config);
    for (const Request& r : mixed_requests()) ASSERT_TRUE(h->submit(r).ok());
    h.read(20);
    (wanted ? alone : bare) = h.answers;
  }
  for (const Request& r : mixed_requests()) {
    const Answer& a = alone[r.id];
    EXPECT_EQ(a.ids, bare[r.id].ids);
    for (const TokenOutput& t : bare[r.id].tokens) EXPECT_TRUE(t.kept.empty() && t.entropy < 0);
    for (const TokenOutput& t : a.tokens) {
      EXPECT_GE(t.entropy, 0.0f);
      EXPECT_LE(t.entropy, 4.6f) << "log of the vocabulary, 97";
      EXPECT_TRUE(std::ranges::is_sorted(t.kept));
      if (!r.sampling.truncates()) {
        EXPECT_TRUE(t.kept.empty());
        continue;
      }
      EXPECT_TRUE(std::ranges::binary_search(t.kept, t.id));
      if (r.sampling.greedy()) {
        EXPECT_EQ(t.kept, std::vector<int32_t>{t.id});
      }
      if (r.sampling.top_k > 0) {
        EXPECT_LE(t.kept.size(), 6u);
      }
    }
  }
  uint64_t preemptions = 0;
  for (const auto& [blocks, budget, ranks] : {std::tuple{120, 64, 1}, {24, 32, 1}, {24, 9, 2}, {120, 64, 3}}) {
    SCOPED_TRACE(ranks);
    EngineConfig c = Harness::small(blocks, 8, budget);
    c.entropy = c.kept_tokens = true;
    c.scheduler.reserve_output_blocks = c.scheduler.reserve_min = 0;  // blocks run out while answers grow
    Harness h(c, FakeOptions{}, ranks);
    for (const Request& r : mixed_requests()) ASSERT_TRUE(h->submit(r).ok());
    h.read(20);
    for (auto& [id, a] : h.answers) {
      ASSERT_EQ(a.ids, alone[id].ids);
      for (size_t i = 0; i < a.tokens.size(); ++i) {
        EXPECT_EQ(a.tokens[i].entropy, alone[id].tokens[i].entropy);
        EXPECT_EQ(a.tokens[i].kept, alone[id].tokens[i].kept);
      }
    }
    preemptions += h->stats().preemptions;
  }
  EXPECT_GT(preemptions, 0u);
}

TEST(DrawFacts, OneAloneIsAskedFor) {
  for (const bool entropy : {false, true}) {
    EngineConfig c = Harness::small();
    c.entropy = entropy, c.kept_tokens = !entropy;
    Harness h(c);
    Request r = Harness::request(1, {1, 2, 3}, 5);
    ASSERT_TRUE(h->submit(r).ok());
    h.read(1);
    for (const TokenOutput& t : h.answers[1].tokens) {
      EXPECT_EQ(t.entropy >= 0, entropy);
      EXPECT_EQ(t.kept.empty(), entropy);
    }
  }
}

TEST(DrawFacts, TooManyIdsEndTheRequestAlone) {
  EngineConfig c = Harness::small();
  c.kept_tokens = true, c.most_kept_ids = 30;
  Harness h(c);
  Request wide = Harness::request(1, {1, 2}, 40), narrow = Harness::request(2, {1, 2}, 30);
  wide.ignore_eos = narrow.ignore_eos = true;
  wide.sampling.temperature = 5.0f, wide.sampling.top_k = 10, wide.sampling.top_p = 1.0f;
  ASSERT_TRUE(h->submit(wide).ok());
  ASSERT_TRUE(h->submit(narrow).ok());
  h.read(2);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kError);
  EXPECT_EQ(h.answers[1].ids.size(), 3u);
  EXPECT_NE(h.answers[1].last.error.message.find("more than 30 ids"), std::string::npos);
  EXPECT_EQ(h.answers[2].last.finish, FinishReason::kLength);
  EXPECT_EQ(h.answers[2].ids.size(), 30u);
}

}  // namespace
}  // namespace tern::engine
