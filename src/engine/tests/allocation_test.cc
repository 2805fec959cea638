// A steady decode step allocates nothing on the engine's and the rank's thread. operator new counts while told to, by
// thread name; sanitizers bring their own and skip this.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstring>

#include "engine/tests/engine_harness.h"

namespace {
std::atomic<bool> g_counting{false};
std::atomic<int> g_engine{0}, g_rank{0};

[[maybe_unused]] void count_new() {
  if (!g_counting.load(std::memory_order_relaxed)) return;
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  if (std::strncmp(name, "engine", 6) == 0) ++g_engine;
  if (std::strncmp(name, "rank-", 5) == 0) ++g_rank;
}
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TERN_COUNTS_ALLOCATIONS
#include "base/tests/counted_new.h"
#endif

namespace tern::engine {

// Lets eight sequences decode and counts over `steps` steps in their middle.
void expect_no_allocations(Harness& h, std::vector<Request> requests, uint64_t steps) {
#ifndef TERN_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "sanitizers replace operator new";
#endif
  const size_t count = requests.size();
  g_engine = g_rank = 0;
  g_counting = true;
  for (Request& r : requests) ASSERT_TRUE(h->submit(std::move(r)).ok());
  while (h->stats().running < static_cast<int>(count) || h->stats().generated_tokens < 12 * count) {
    h.take(std::chrono::milliseconds(5));
  }
  EXPECT_GT(g_engine.load(), 0) << "admission allocates: the counter must see it";
  const uint64_t from = h->stats().steps;
  g_engine = g_rank = 0;
  while (h->stats().steps < from + steps && h.ended == 0) h.take(std::chrono::milliseconds(5));
  g_counting = false;
  EXPECT_EQ(h.ended, 0u) << "the steps were not steady";
  EXPECT_EQ(g_engine.load(), 0);
  EXPECT_EQ(g_rank.load(), 0);
  h->shutdown(true);
}

TEST(Allocations, NoneInASteadyStepOfTheFakeModel) {
  EngineConfig c = Harness::small(1200, 8, 64);
  c.scheduler.max_model_len = 1000;
  std::atomic<int64_t> pace{100'000};
  FakeOptions options;
  options.step_ns = &pace;
  Harness h(c, options);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 8; ++id) {
    Request r = Harness::request(id, {1, static_cast<int32_t>(id)}, 900);
    r.ignore_eos = true;
    r.sampling.temperature = id % 2 ? 0.0f : 1.0f;
    r.sampling.logprobs = id % 3 == 0 ? 5 : -1;
    r.sampling.repetition_penalty = id % 4 == 0 ? 1.1f : 1.0f;
    requests.push_back(std::move(r));
  }
  expect_no_allocations(h, std::move(requests), 150);
}

}  // namespace tern::engine
