// Several engines behind one: where requests go, what is summed up, how they end.
#include "engine/engines.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "engine/echo.h"
#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

Harness engines_of(int count, const EngineConfig& config = Harness::small(200)) {
  return Harness(config, FakeOptions{}, 1, nullptr, count);
}

// Forty tokens that no other family begins with.
std::vector<int32_t> beginning(int family) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back((family * 13 + i * 5) % 96 + 1);
  return ids;
}

TEST(Engines, AConversationStaysWhereItsBeginningIsCached) {
  constexpr int kFamilies = 12;
  Harness h = engines_of(3);
  for (int f = 0; f < kFamilies; ++f) {
    ASSERT_TRUE(h->submit(Harness::request(static_cast<RequestId>(f), beginning(f), 20)).ok());
  }
  h.read(kFamilies);
  for (const EngineStats& s : h->parts()) EXPECT_GT(s.prompt_tokens, 0u) << "they came at once: all take part";
  std::mt19937 rng(6);
  RequestId id = kFamilies;
  for (int round = 0; round < 40; ++round) {
    std::vector<int32_t> prompt = beginning(static_cast<int>(rng() % kFamilies));
    for (int i = 0; i < 7; ++i) prompt.push_back(static_cast<int32_t>(rng() % 97));
    ASSERT_TRUE(h->submit(Harness::request(id, prompt, 5)).ok());
    h.read(h.ended + 1);
    EXPECT_EQ(h.answers[id].ids, h.fake().continuation(prompt, 5, 0));
    EXPECT_EQ(h.answers[id++].last.cached_tokens, 40);
  }
}

TEST(Engines, WithoutPrefixCachingLoadDecides) {
  EngineConfig c = Harness::small();
  c.scheduler.prefix_caching = false;
  std::atomic<int64_t> step_ns = 50'000'000;
  Harness h(c, FakeOptions{.step_ns = &step_ns}, 1, nullptr, 2);
  for (RequestId id = 1; id <= 8; ++id) {
    Request r = Harness::request(id, beginning(1), 100);
    r.ignore_eos = true;
    ASSERT_TRUE(h->submit(std::move(r)).ok());
  }
  const std::vector<EngineStats> parts = h->parts();
  for (const EngineStats& s : parts) EXPECT_EQ(s.running + s.waiting, 4);
  EXPECT_EQ(h->stats().running + h->stats().waiting, 8);
  step_ns = 0;
  h.read(8);
}

TEST(Engines, FiguresAreSums) {
  Harness h = engines_of(2);
  const EngineStats before = h->stats();
  EXPECT_EQ(before.total_blocks, 400);
  EXPECT_EQ(before.max_num_seqs, 16);
  for (RequestId id = 1; id <= 10; ++id) ASSERT_TRUE(h->submit(Harness::request(id, beginning(7), 12)).ok());
  h.read(10);
  size_t said = 0;
  for (const auto& [id, answer] : h.answers) said += answer.ids.size();
  const EngineStats s = h->stats();
  EXPECT_EQ(s.generated_tokens, said);
  EXPECT_EQ(s.prompt_tokens, 400u);
  EngineStats sum;
  for (const EngineStats& part : h->parts()) {
    sum.generated_tokens += part.generated_tokens, sum.steps += part.steps;
    EXPECT_EQ(part.total_blocks, 200);
  }
  EXPECT_EQ(sum.generated_tokens, said);
  EXPECT_EQ(sum.steps, s.steps);
  EXPECT_TRUE(s.healthy);
}

TEST(Engines, PollWaitsNoLongerThanItIsTold) {
  Harness h = engines_of(2);
  const int64_t begin = monotonic_ns();
  EXPECT_TRUE(h.take(milliseconds(30)));
  EXPECT_GE(monotonic_ns() - begin, 29'000'000);
  EXPECT_LT(monotonic_ns() - begin, 5'000'000'000);
}

TEST(Engines, DrainingFinishesWhatIsOpenAndTakesNothingNew) {
  Harness h = engines_of(2);
  for (RequestId id = 1; id <= 6; ++id) ASSERT_TRUE(h->submit(Harness::request(id, beginning(3), 30)).ok());
  h->shutdown(false);
  EXPECT_EQ(h->submit(Harness::request(7, {1}, 1)).error().code, ErrorCode::kUnavailable);
  while (h.take(milliseconds(50))) {
  }
  EXPECT_EQ(h.ended, 6u);
  for (RequestId id = 1; id <= 6; ++id) EXPECT_EQ(h.answers[id].ids, h.fake().continuation(beginning(3), 30, 0));
  EXPECT_FALSE(h.take(milliseconds(0)));
}

TEST(Engines, AbortsReachTheEngineThatHasTheRequest) {
  std::atomic<int64_t> step_ns = 1'000'000;
  Harness h(Harness::small(), FakeOptions{.step_ns = &step_ns}, 1, nullptr, 2);
  for (RequestId id = 1; id <= 8; ++id) {
    Request r = Harness::request(id, beginning(2), 100);
    r.ignore_eos = true;
    ASSERT_TRUE(h->submit(std::move(r)).ok());
  }
  for (RequestId id = 1; id <= 8; id += 2) h->abort(id);
  h->abort(99);
  step_ns = 0;
  h.read(8);
  for (RequestId id = 1; id <= 8; ++id) {
    EXPECT_EQ(h.answers[id].last.finish, id % 2 == 1 ? FinishReason::kAbort : FinishReason::kLength);
  }
}

TEST(Engines, OneThatFailsSaysWhichAndTheOthersGoOn) {
  for (const int failing : {0, 1}) {
    EngineConfig c = Harness::small();
    c.fault = device::Fault::kTrap, c.fault_step = 4, c.fault_engine = failing;
    std::atomic<int64_t> step_ns = 20'000'000;  // all are there before the first step ends
    Harness h(c, FakeOptions{.step_ns = &step_ns}, 1, nullptr, 2);
    for (RequestId id = 1; id <= 4; ++id) {
      Request r = Harness::request(id, beginning(static_cast<int>(id)), 60);
      r.ignore_eos = true;
      ASSERT_TRUE(h->submit(std::move(r)).ok());
    }
    step_ns = 0;
    h.read(4);
    int failed = 0;
    for (RequestId id = 1; id <= 4; ++id) {
      const Answer& a = h.answers[id];
      if (a.last.finish == FinishReason::kLength) {
        EXPECT_EQ(a.ids, h.fake().continuation(beginning(static_cast<int>(id)), 60, -1));
        continue;
      }
      ++failed;
      EXPECT_NE(a.last.error.message.find(fmt::format("engine {} failed", failing)), std::string::npos)
          << a.last.error.message;
    }
    EXPECT_EQ(failed, 2);
    EXPECT_FALSE(h->healthy());
    EXPECT_FALSE(h->stats().healthy);
    EXPECT_EQ(h->parts()[static_cast<size_t>(1 - failing)].healthy, true);
  }
}

TEST(Engines, AFaultOfNoEngine) {
  const FakeModel model({});
  const auto device = device::make_cpu_device({1, false}).value();
  EngineConfig c = Harness::small();
  c.fault = device::Fault::kTrap, c.fault_step = 1, c.fault_engine = 1;
  const EnginePart only{{{&model, device.get()}}};
  const auto engine = start_engines(c, {&only, 1});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message, "TERN_FAULT: there is no engine 1 of 1");
}

// Blocks by memory: an engine counts with its own part of what there is.
TEST(Engines, EachHasItsPartOfTheMemory) {
  const FakeModel model({});
  const auto device = device::make_cpu_device({1, false}).value();
  const auto blocks = [&](size_t available) {
    EngineConfig c = Harness::small(0);
    c.prefix_cache_allowance = 1e6;
    c.data_parallel.memory_total = size_t{1} << 30, c.data_parallel.memory_available = available;
    const auto engine = Engine::start(c, model, *device);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? (*engine)->blocks().total : 0;
  };
  const int whole = blocks(size_t{4} << 20), half = blocks(size_t{2} << 20);
  EXPECT_GT(half, 0);
  EXPECT_LT(half, whole / 2 + whole / 10);
}

// An engine without a model takes the same place.
TEST(Engines, OfEchoes) {
  const auto news = std::make_shared<NewsSignal>();
  EchoConfig echo;
  echo.news = news.get();
  std::vector<std::unique_ptr<EngineClient>> both;
  for (int i = 0; i < 2; ++i) both.push_back(make_echo_engine(echo));
  Engines engines(std::move(both), news);
  for (RequestId id = 1; id <= 6; ++id) ASSERT_TRUE(engines.submit(Harness::request(id, {1, 2, 3}, 3)).ok());
  std::vector<Delta> news_of_all;
  size_t ended = 0;
  while (ended < 6) {
    news_of_all.clear();
    ASSERT_TRUE(engines.poll(news_of_all, milliseconds(1000)));
    for (const Delta& d : news_of_all) ended += d.finish != FinishReason::kNone;
  }
  EXPECT_EQ(engines.stats().generated_tokens, 18u);
  engines.shutdown(false);
  news_of_all.clear();
  while (engines.poll(news_of_all, milliseconds(50))) {
  }
}

}  // namespace
}  // namespace tern::engine
