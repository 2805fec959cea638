// Guided decoding in the engine: masks come from a pool while steps go on, whoever is late is computed again, and what
// is said is what the grammar and the model say, whatever the times.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "engine/tests/engine_harness.h"
#include "engine/tests/graph_model.h"

namespace tern::engine {
namespace {

// A grammar by rule: what may follow so many tokens of the guided part.
struct Rule {
  std::function<bool(const std::vector<int32_t>& said, int32_t id)> allows;
  std::function<std::vector<int32_t>(const std::vector<int32_t>& said)> forces = {};
  std::function<Status(size_t said)> fails = {};
  std::chrono::microseconds slow{0};  // at most, of every mask
};

class RuleMatcher final : public TokenMatcher {
 public:
  RuleMatcher(const Rule& rule, std::atomic<int>& alive) : rule_(rule), alive_(alive) { ++alive_; }
  ~RuleMatcher() override { --alive_; }
  Status consume(std::span<const int32_t> ids) override {
    for (const int32_t id : ids) {
      EXPECT_TRUE(rule_.allows(said_, id)) << "token " << id << " behind " << said_.size();
      said_.push_back(id);
    }
    return {};
  }
  Status fill(std::span<uint32_t> bits) override {
    if (rule_.slow.count() > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(rng_() % static_cast<uint32_t>(rule_.slow.count())));
    }
    if (rule_.fails) TERN_RETURN_IF_ERROR(rule_.fails(said_.size()));
    std::ranges::fill(bits, 0u);
    for (int32_t id = 0; id < 97; ++id) {
      if (rule_.allows(said_, id)) bits[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
    return {};
  }
  Status forced(size_t most, std::vector<int32_t>& ids) override {
    if (!rule_.forces) return {};
    std::vector<int32_t> all = rule_.forces(said_);
    all.resize(std::min(all.size(), most));
    ids.insert(ids.end(), all.begin(), all.end());
    return {};
  }
  Status roll_back(size_t count) override {
    said_.resize(said_.size() - count);
    return {};
  }

 private:
  const Rule& rule_;
  std::atomic<int>& alive_;
  std::vector<int32_t> said_;
  std::minstd_rand rng_{7};
};

class RuleGrammar final : public Grammar {
 public:
  RuleGrammar(Rule rule, std::atomic<int>& alive) : rule_(std::move(rule)), alive_(alive) {}
  Expected<std::unique_ptr<TokenMatcher>> start() const override {
    if (!rule_.allows) return make_error(ErrorCode::kInvalidArgument, "the grammar does not parse");
    return std::unique_ptr<TokenMatcher>(std::make_unique<RuleMatcher>(rule_, alive_));
  }

 private:
  Rule rule_;
  std::atomic<int>& alive_;
};

bool parity(const std::vector<int32_t>& said, int32_t id) { return id % 2 == static_cast<int32_t>(said.size() % 2); }

// 50, 51, 52, 53 after every sixth token; anything else in between.
bool stretches(const std::vector<int32_t>& said, int32_t id) {
  const size_t at = said.size() % 10;
  return at < 6 ? id < 50 && id > 0 : id == static_cast<int32_t>(44 + at);
}
std::vector<int32_t> rest_of_stretch(const std::vector<int32_t>& said) {
  std::vector<int32_t> ids;
  for (size_t at = said.size() % 10; at >= 6 && at < 10; ++at) ids.push_back(static_cast<int32_t>(44 + at));
  return ids;
}

EngineConfig config(int blocks = 64, int seqs = 8, int budget = 64) {
  EngineConfig c = Harness::small(blocks, seqs, budget);
  c.mask_threads = 2;
  return c;
}

// Blocks of open rows come back when their step has been collected.
bool all_free(Harness& h) {
  for (int i = 0; i < 500 && h->stats().usable_blocks != h->stats().total_blocks; ++i)
    h.take(std::chrono::milliseconds(10));
  return h->stats().usable_blocks == h->stats().total_blocks;
}

TEST(Guidance, MasksErrorsAndNeighbours) {
  std::atomic<int> alive = 0;
  for (const int ranks : {1, 2, 3}) {
    Harness h(config(30, 6, 24), FakeOptions{}, ranks);
    const auto lost = [](size_t said) {
      return said == 3 ? Status(make_error(ErrorCode::kInternal, "lost")) : Status();
    };
    const auto none = [](const std::vector<int32_t>& said, int32_t id) { return said.size() < 2 && parity(said, id); };
    for (RequestId id = 1; id <= 12; ++id) {
      Request r = Harness::request(id, {static_cast<int32_t>(id), 2, 3}, 25);
      r.ignore_eos = true;
      Rule rule{parity};
      if (id == 8) rule.allows = none;
      if (id == 9) rule.fails = lost;
      if (id == 10) rule.allows = nullptr;
      if (id % 3 == 0 || id == 8 || id == 10) r.constraint.grammar = std::make_shared<RuleGrammar>(rule, alive);
      ASSERT_TRUE(h->submit(r).ok());
    }
    h.read(12);
    for (RequestId id : {3, 6, 12}) {
      const auto& ids = h.answers[id].ids;
      ASSERT_EQ(ids.size(), 25u);
      for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i] % 2, static_cast<int32_t>(i % 2));
    }
    for (RequestId id : {1, 2, 4, 5, 7, 11}) {
      EXPECT_EQ(h.answers[id].ids, h.fake().continuation({static_cast<int32_t>(id), 2, 3}, 25, -1));
    }
    EXPECT_EQ(h.answers[9].last.error.message, "lost");
    EXPECT_EQ(h.answers[9].ids.size(), 3u);
    EXPECT_EQ(h.answers[8].last.finish, FinishReason::kError);
    EXPECT_EQ(h.answers[8].ids.size(), 2u);
    EXPECT_EQ(h.answers[10].last.error.message, "the grammar does not parse");
    EXPECT_TRUE(h->healthy());
  }
  EXPECT_EQ(alive, 0);
}

TEST(Guidance, IsRefusedWithoutThreads) {
  std::atomic<int> alive = 0;
  Harness h(Harness::small());
  Request r = Harness::request(1, {1, 2}, 5);
  r.constraint.grammar = std::make_shared<RuleGrammar>(Rule{parity}, alive);
  ASSERT_TRUE(h->submit(r).ok());
  h.read(1);
  EXPECT_EQ(h.answers[1].last.error.message, "guided decoding is off");
}

TEST(Guidance, ASlowGrammarHoldsNobodyUp) {
  std::atomic<int> alive = 0;
  Harness h(config());
  Rule slow{parity};
  slow.slow = std::chrono::milliseconds(400);
  Request guided = Harness::request(1, {1, 2, 3}, 4), plain = Harness::request(2, {4, 5, 6}, 60);
  guided.ignore_eos = plain.ignore_eos = true;
  guided.constraint.grammar = std::make_shared<RuleGrammar>(slow, alive);
  ASSERT_TRUE(h->submit(guided).ok());
  ASSERT_TRUE(h->submit(plain).ok());
  h.read(1);
  EXPECT_EQ(h.answers[2].ids, h.fake().continuation({4, 5, 6}, 60, -1));
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kNone) << "the plain one ends first";
  h.read(2);
  ASSERT_EQ(h.answers[1].ids.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(h.answers[1].ids[i] % 2, static_cast<int32_t>(i % 2));
}

TEST(Guidance, BeginsBehindTheMark) {
  std::atomic<int> alive = 0;
  Harness h(config());
  const std::vector<int32_t> prompt{9, 8, 7};
  const auto free = h.fake().continuation(prompt, 40, -1);
  Request r = Harness::request(1, prompt, 40);
  r.ignore_eos = true;
  r.constraint.grammar = std::make_shared<RuleGrammar>(Rule{parity}, alive);
  r.sampling.thinking_mark = {free[10], free[11]};
  r.constraint.after_thinking = true;
  ASSERT_TRUE(h->submit(r).ok());
  h.read(1);
  const auto& ids = h.answers[1].ids;
  ASSERT_EQ(ids.size(), 40u);
  const auto begin = std::search(free.begin(), free.end(), free.begin() + 10, free.begin() + 12) - free.begin() + 2;
  EXPECT_TRUE(std::equal(free.begin(), free.begin() + begin, ids.begin()));
  for (size_t i = static_cast<size_t>(begin); i < 40; ++i) {
    EXPECT_EQ(ids[i] % 2, static_cast<int32_t>((i - static_cast<size_t>(begin)) % 2)) << i;
  }
}

// Reasoning of a fake model that never ends it, or has begun to: what is forced, and what the answer may say then.
TEST(Guidance, ReasoningHasALimit) {
  std::atomic<int> alive = 0;
  Harness h(config());
  const std::vector<int32_t> prompt{9, 8, 7};
  const auto free = h.fake().continuation(prompt, 40, -1);
  int32_t end = 1;  // an id that the model does not say
  while (std::ranges::find(free, end) != free.end()) ++end;
  const auto ask = [&](RequestId id, std::vector<int32_t> mark, int limit, std::vector<int32_t> forced) {
    Request r = Harness::request(id, prompt, 40);
    r.ignore_eos = true;
    r.sampling.thinking_mark = std::move(mark), r.sampling.thinking_forced = std::move(forced);
    r.sampling.thinking_limit = limit;
    return r;
  };
  std::vector<Request> list = {ask(1, {end, 95}, 10, {94, end, 95, 93}),
                               ask(2, {free[9], 95}, 10, {94, free[9], 95}),
                               ask(3, {free[4]}, 10, {94}),
                               ask(4, {end}, 0, {94, end}),
                               ask(5, {end}, 10, {end}),
                               ask(6, {end}, 10, {94, end})};
  list[4].max_answer_tokens = 3;
  list[5].constraint = {std::make_shared<RuleGrammar>(Rule{parity}, alive), true};
  for (const Request& r : list) ASSERT_TRUE(h->submit(r).ok());
  h.read(list.size());
  const auto said = [&](RequestId id, size_t begin, size_t count) {
    const auto& ids = h.answers[id].ids;
    return std::vector<int32_t>(ids.begin() + static_cast<int64_t>(begin),
                                ids.begin() + static_cast<int64_t>(begin + count));
  };
  const std::vector<int32_t> thoughts(free.begin(), free.begin() + 10);
  for (const RequestId id : {1, 2, 5, 6}) EXPECT_EQ(said(id, 0, 10), thoughts);
  EXPECT_EQ(said(1, 10, 4), (std::vector<int32_t>{94, end, 95, 93}));
  EXPECT_EQ(said(2, 10, 1), std::vector<int32_t>{95}) << "the mark had begun";
  EXPECT_EQ(h.answers[3].ids, free) << "the mark came in time";
  EXPECT_EQ(said(4, 0, 2), (std::vector<int32_t>{94, end}));
  EXPECT_EQ(h.answers[5].ids.size(), 14u);
  EXPECT_EQ(h.answers[5].last.finish, FinishReason::kLength);
  for (size_t i = 12; i < 40; ++i) EXPECT_EQ(h.answers[6].ids[i] % 2, static_cast<int32_t>(i % 2));
  const Request bad[] = {ask(7, {}, 10, {94}), ask(8, {96}, 10, {}), ask(9, {96}, 10, {97})};
  for (const Request& r : bad) ASSERT_TRUE(h->submit(r).ok());
  h.read(list.size() + 3);
  for (const Request& r : bad) EXPECT_EQ(h.answers[r.id].last.error.param, "reasoning_max_tokens");
}

TEST(Guidance, AbortsWhileMasksAreComputed) {
  std::atomic<int> alive = 0;
  {
    Harness h(config());
    Rule slow{parity};
    slow.slow = std::chrono::milliseconds(20);
    for (RequestId id = 1; id <= 8; ++id) {
      Request r = Harness::request(id, {static_cast<int32_t>(id), 2, 3}, 100);
      r.ignore_eos = true;
      r.constraint.grammar = std::make_shared<RuleGrammar>(slow, alive);
      ASSERT_TRUE(h->submit(r).ok());
    }
    h.take(std::chrono::milliseconds(50));
    for (RequestId id = 1; id <= 8; ++id) h->abort(id);
    h.read(8);
    EXPECT_TRUE(all_free(h));
  }
  EXPECT_EQ(alive, 0);
}

std::vector<Request> mixed_requests(std::atomic<int>& alive, bool forces, std::chrono::microseconds slow) {
  std::mt19937 rng(21);
  std::vector<Request> list;
  for (int i = 1; i <= 40; ++i) {
    std::vector<int32_t> prompt(2 + rng() % 40);
    for (size_t k = 0; k < prompt.size(); ++k) prompt[k] = static_cast<int32_t>(k < 16 ? k * 7 % 97 : rng() % 97);
    Request r = Harness::request(static_cast<RequestId>(i), prompt, 10 + static_cast<int>(rng() % 50));
    r.ignore_eos = i % 5 != 0;
    SamplingParams& p = r.sampling;
    if (i % 2 == 0) p.temperature = 0.9f, p.top_p = 0.95f, p.seed = static_cast<uint64_t>(i);
    if (i % 4 == 0) p.repetition_penalty = 1.2f, p.frequency_penalty = 0.3f;
    if (i % 8 == 0) p.logit_bias = {{5, 2.0f}}, p.bad_words = {7, 9};
    if (i % 7 == 0) p.logprobs = 2;
    Rule rule{parity};
    if (i % 3 == 1) rule.allows = stretches;
    if (i % 3 == 1 && forces) rule.forces = rest_of_stretch;
    rule.slow = slow;
    if (i % 3 != 0) r.constraint.grammar = std::make_shared<RuleGrammar>(rule, alive);
    if (i % 6 == 4) p.thinking_mark = {static_cast<int32_t>(20 + i)}, r.constraint.after_thinking = true;
    if (i % 6 == 1) p.thinking_mark = {9}, p.thinking_limit = i % 11, p.thinking_forced = {3, 9, 4};
    if (i % 12 == 1) r.constraint.after_thinking = true;
    list.push_back(std::move(r));
  }
  return list;
}

// Few blocks, so that sequences are preempted; with and without graphs, forced tokens and slow masks: equal answers.
TEST(Guidance, AnswersDoNotDependOnTimes) {
  std::map<RequestId, Answer> want;
  for (int variant = 0; variant < 6; ++variant) {
    std::atomic<int> alive = 0;
    {
      const auto list = mixed_requests(alive, variant % 2 == 1, std::chrono::microseconds(variant >= 2 ? 300 : 0));
      GraphModel model({});
      EngineConfig c = config(40, 8, 48);
      c.graphs.use = variant >= 4;
      Harness h(c, model, std::make_unique<GraphDevice>());
      for (const Request& r : list) ASSERT_TRUE(h->submit(r).ok());
      h.read(list.size());
      if (variant == 0) want = h.answers;
      EXPECT_EQ(h->stats().graph_steps > 0, c.graphs.use);
      for (const Request& r : list) {
        ASSERT_EQ(h.answers[r.id].last.error.message, want[r.id].last.error.message);
        ASSERT_EQ(h.answers[r.id].ids, want[r.id].ids) << "request " << r.id << ", variant " << variant;
      }
      EXPECT_TRUE(all_free(h));
    }
    EXPECT_EQ(alive, 0);
  }
}

}  // namespace
}  // namespace tern::engine
