// Random loads over the fake model: whatever is shared, cut, preempted or aborted, every answer is the closed form.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRequests = 150;
#else
constexpr int kRequests = 600;
#endif

struct Load {
  int blocks, seqs, budget;
  bool v1 = true, prefix = true, chunked = true;
  double aborts = 0.1;
  int ranks = 1;
  int engines = 1;
};

std::vector<int32_t> random_prompt(std::mt19937& rng) {
  // Few beginnings, so that prefixes are shared.
  std::vector<int32_t> p(1 + rng() % 100);
  const auto family = static_cast<int32_t>(rng() % 4);
  const size_t common = rng() % 60;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = i < common ? (family * 31 + static_cast<int32_t>(i) * 7) % 97 : static_cast<int32_t>(rng() % 97);
  }
  return p;
}

// Once what is behind the last tokens has been collected, too.
EngineStats idle_stats(Harness& h) {
  const int64_t limit = monotonic_ns() + 5'000'000'000;
  EngineStats s = h->stats();
  while (s.open_tokens > 0 && monotonic_ns() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
    s = h->stats();
  }
  return s;
}

// Each of several engines made a fair part of `tokens`.
void expect_parts(const std::vector<EngineStats>& parts, int engines, uint64_t tokens) {
  ASSERT_EQ(parts.size(), static_cast<size_t>(engines));
  for (const EngineStats& part : parts) EXPECT_GE(part.generated_tokens, tokens / (4 * parts.size()));
}

void run_load(const Load& load, uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "blocks " << load.blocks << " seqs " << load.seqs << " budget " << load.budget
                                  << " v1 " << load.v1 << " seed " << seed);
  EngineConfig c = Harness::small(load.blocks, load.seqs, load.budget);
  c.scheduler.v1 = load.v1, c.scheduler.prefix_caching = load.prefix, c.scheduler.chunked_prefill = load.chunked;
  Harness h(c, FakeOptions{}, load.ranks, nullptr, load.engines);
  std::mt19937 rng(seed);
  std::map<RequestId, Request> asked;
  std::vector<RequestId> aborted;
  RequestId next = 1;
  while (next <= kRequests) {
    for (size_t burst = 1 + rng() % 12; burst > 0 && next <= kRequests; --burst, ++next) {
      Request r = Harness::request(next, random_prompt(rng), 1 + static_cast<int>(rng() % 60));
      r.ignore_eos = rng() % 3 != 0;
      asked[next] = r;
      ASSERT_TRUE(h->submit(r).ok());
      if (rng() % 1000 < load.aborts * 1000) {
        const RequestId victim = 1 + rng() % next;
        h->abort(victim);
        aborted.push_back(victim);
      }
    }
    h.take(milliseconds(rng() % 3));
  }
  h.read(kRequests, 60);
  size_t ends_by_abort = 0;
  for (auto& [id, r] : asked) {
    const Answer& a = h.answers[id];
    const auto want = h.fake().continuation(r.prompt, std::min(r.max_tokens, 160 - static_cast<int>(r.prompt.size())),
                                            r.ignore_eos ? -1 : 0);
    if (a.last.finish == FinishReason::kAbort) {
      ++ends_by_abort;
      ASSERT_LE(a.ids.size(), want.size());
      EXPECT_TRUE(std::equal(a.ids.begin(), a.ids.end(), want.begin()));
    } else {
      ASSERT_TRUE(a.last.finish == FinishReason::kStop || a.last.finish == FinishReason::kLength)
          << id << ": " << a.last.error.message;
      EXPECT_EQ(a.ids, want) << "request " << id;
    }
  }
  EXPECT_LE(ends_by_abort, aborted.size());
  EXPECT_TRUE(h->healthy());
  const EngineStats s = idle_stats(h);
  EXPECT_EQ(s.running + s.waiting + s.preempted_waiting, 0);
  EXPECT_EQ(s.usable_blocks, load.blocks * load.engines);
  EXPECT_EQ(s.open_tokens, 0);
  // Where nearly all is aborted and a machine is slow, several engines may never be full at once.
  const bool full = load.engines == 1 || load.aborts < 0.5;
  expect_parts(h->parts(), load.engines, full ? s.generated_tokens : 0);
  if (full && load.blocks < 40 && load.v1) {
    EXPECT_GT(s.preemptions, 0u);
  }
  if (load.prefix) {
    EXPECT_GT(s.prefix_hit_tokens, 0u);
  }
}

TEST(EngineLoad, PlentyOfBlocks) { run_load({.blocks = 200, .seqs = 8, .budget = 64}, 1); }
TEST(EngineLoad, FewBlocksPreempt) { run_load({.blocks = 24, .seqs = 8, .budget = 32}, 2); }
TEST(EngineLoad, TinyChunks) { run_load({.blocks = 30, .seqs = 6, .budget = 7}, 3); }
TEST(EngineLoad, WithoutPrefixCache) { run_load({.blocks = 26, .seqs = 8, .budget = 48, .prefix = false}, 4); }
TEST(EngineLoad, WholePrompts) { run_load({.blocks = 40, .seqs = 8, .budget = 160, .chunked = false}, 5); }
TEST(EngineLoad, LegacyScheduler) { run_load({.blocks = 48, .seqs = 8, .budget = 64, .v1 = false}, 6); }
TEST(EngineLoad, ManyAborts) { run_load({.blocks = 30, .seqs = 8, .budget = 32, .aborts = 0.9}, 7); }

TEST(EngineLoad, TwoEngines) { run_load({.blocks = 30, .seqs = 8, .budget = 32, .engines = 2}, 11); }
TEST(EngineLoad, ThreeEnginesOfTwoRanks) {
  run_load({.blocks = 24, .seqs = 4, .budget = 16, .ranks = 2, .engines = 3}, 12);
}
TEST(EngineLoad, TwoEnginesManyAborts) {
  run_load({.blocks = 30, .seqs = 8, .budget = 32, .aborts = 0.9, .engines = 2}, 13);
}
TEST(EngineLoad, TwoEnginesLegacyScheduler) {
  run_load({.blocks = 48, .seqs = 8, .budget = 64, .v1 = false, .engines = 2}, 14);
}

TEST(EngineLoad, TwoRanks) { run_load({.blocks = 30, .seqs = 8, .budget = 32, .ranks = 2}, 8); }
TEST(EngineLoad, FourRanksInTinyChunks) { run_load({.blocks = 30, .seqs = 6, .budget = 7, .ranks = 4}, 9); }
TEST(EngineLoad, TwoRanksLegacyScheduler) {
  run_load({.blocks = 48, .seqs = 8, .budget = 64, .v1 = false, .ranks = 2}, 10);
}

// Every client vanishes at once, again and again.
TEST(EngineLoad, DisconnectStorm) {
  Harness h(Harness::small(40, 8, 32));
  std::mt19937 rng(9);
  RequestId next = 1;
  for (int round = 0; round < 20; ++round) {
    const RequestId first = next;
    for (int i = 0; i < 25; ++i) {
      Request r = Harness::request(next++, random_prompt(rng), 60);
      r.ignore_eos = true;
      ASSERT_TRUE(h->submit(std::move(r)).ok());
    }
    if (round % 2) h.take(milliseconds(2));
    for (RequestId id = first; id < next; ++id) h->abort(id);
  }
  h.read(next - 1);
  EXPECT_EQ(h.ended, next - 1);
  ASSERT_TRUE(h->submit(Harness::request(next, {7, 8}, 9)).ok());
  h.read(next);
  EXPECT_EQ(h.answers[next].ids, h.fake().continuation({7, 8}, 9, 0));
  EXPECT_EQ(h->stats().usable_blocks, 40);
}

// Several threads submit and abort while one reads: for the thread sanitizer.
void many_threads(int engines) {
  Harness h(Harness::small(40, 8, 32), FakeOptions{}, 1, nullptr, engines);
  constexpr int kThreads = 4, kEach = kRequests / 8;
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&h, t] {
      std::mt19937 rng(static_cast<uint32_t>(t));
      for (int i = 0; i < kEach; ++i) {
        const auto id = static_cast<RequestId>(t * kEach + i + 1);
        ASSERT_TRUE(h->submit(Harness::request(id, random_prompt(rng), 20)).ok());
        if (rng() % 4 == 0) h->abort(id);
        (void)h->stats();
        (void)h->healthy();
      }
    });
  }
  h.read(kThreads * kEach);
  for (auto& c : clients) c.join();
  EXPECT_EQ(h.ended, static_cast<size_t>(kThreads * kEach));
}
TEST(EngineLoad, ManyThreads) { many_threads(1); }
TEST(EngineLoad, ManyThreadsTwoEngines) { many_threads(2); }

}  // namespace
}  // namespace tern::engine
