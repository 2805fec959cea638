#include "engine/echo.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/clock.h"
#include "base/tests/eventually.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

Request make(RequestId id, std::vector<int32_t> prompt, int max_tokens) {
  Request r;
  r.id = id;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.arrival_ns = monotonic_ns();
  return r;
}

struct EchoAnswer {
  std::vector<int32_t> ids;
  Delta last;
  int deltas = 0;
};

// Polls until `count` requests have ended.
std::map<RequestId, EchoAnswer> read(EngineClient& engine, size_t count) {
  std::map<RequestId, EchoAnswer> answers;
  size_t ended = 0;
  const int64_t limit = monotonic_ns() + 10'000'000'000;
  std::vector<Delta> deltas;
  while (ended < count && monotonic_ns() < limit) {
    deltas.clear();
    engine.poll(deltas, milliseconds(50));
    for (Delta& d : deltas) {
      EchoAnswer& a = answers[d.id];
      EXPECT_EQ(a.last.finish, FinishReason::kNone) << "news after the end";
      for (const TokenOutput& t : d.tokens) a.ids.push_back(t.id);
      ++a.deltas;
      a.last = d;
      if (d.finish != FinishReason::kNone) ++ended;
    }
  }
  EXPECT_EQ(ended, count);
  return answers;
}

TEST(Echo, SaysThePromptAgain) {
  auto engine = make_echo_engine({.eos_token_id = 2});
  ASSERT_TRUE(engine->submit(make(1, {5, 6, 7}, 10)).ok());
  ASSERT_TRUE(engine->submit(make(2, {5, 6, 7}, 2)).ok());
  auto answers = read(*engine, 2);
  EXPECT_EQ(answers[1].ids, (std::vector<int32_t>{5, 6, 7, 2}));
  EXPECT_EQ(answers[1].last.finish, FinishReason::kStop);
  EXPECT_EQ(answers[1].last.stop_token, 2);
  EXPECT_EQ(answers[1].last.prompt_tokens, 3);
  EXPECT_EQ(answers[1].deltas, 4);
  EXPECT_GT(answers[1].last.times.first_token, 0);
  EXPECT_EQ(answers[2].ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(answers[2].last.finish, FinishReason::kLength);
}

TEST(Echo, StopsLimitsAndLogprobs) {
  auto engine = make_echo_engine({});
  Request stop = make(1, {5, 6, 7, 8}, 10);
  stop.stop_token_ids = {7};
  Request sequence = make(2, {5, 6, 7, 8}, 10);
  sequence.stop_sequences = {{9}, {5, 6}};
  Request around = make(3, {5, 6}, 5);
  around.ignore_eos = true;
  around.sampling.logprobs = 2;
  around.sampling.prompt_logprobs = 0;
  for (Request* r : {&stop, &sequence, &around}) ASSERT_TRUE(engine->submit(*r).ok());
  auto answers = read(*engine, 3);
  EXPECT_EQ(answers[1].ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(answers[1].last.stop_token, 7);
  EXPECT_EQ(answers[2].ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(answers[2].last.stop_sequence, 1);
  EXPECT_EQ(answers[3].ids, (std::vector<int32_t>{5, 6, 5, 6, 5}));
  ASSERT_EQ(answers[3].last.tokens.at(0).logprobs.size(), 3u);
  EXPECT_EQ(answers[3].last.tokens[0].logprobs[0].id, 5);
  EXPECT_EQ(answers[3].last.tokens[0].logprobs[2].id, 6);
}

TEST(Echo, RefusesBadRequestsAlone) {
  auto engine = make_echo_engine({.vocab_size = 10});
  ASSERT_TRUE(engine->submit(make(1, {}, 4)).ok());
  ASSERT_TRUE(engine->submit(make(2, {10}, 4)).ok());
  ASSERT_TRUE(engine->submit(make(3, {9}, 4)).ok());
  auto answers = read(*engine, 3);
  EXPECT_EQ(answers[1].last.finish, FinishReason::kError);
  EXPECT_EQ(answers[2].last.error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(answers[3].last.finish, FinishReason::kStop);
}

TEST(Echo, AbortsRunningAndWaiting) {
  auto engine = make_echo_engine({.max_num_seqs = 1, .step_ns = 1'000'000, .fixed_tokens = 1 << 30});
  ASSERT_TRUE(engine->submit(make(1, {1}, 1 << 30)).ok());
  ASSERT_TRUE(engine->submit(make(2, {1}, 1 << 30)).ok());
  std::vector<Delta> first;
  while (first.empty()) engine->poll(first, milliseconds(50));
  engine->abort(2);
  engine->abort(1);
  engine->abort(99);
  auto answers = read(*engine, 2);
  EXPECT_EQ(answers[1].last.finish, FinishReason::kAbort);
  EXPECT_EQ(answers[2].last.finish, FinishReason::kAbort);
}

TEST(Echo, DrainsOrEndsAtOnce) {
  auto engine = make_echo_engine({.fixed_tokens = 50});
  ASSERT_TRUE(engine->submit(make(1, {1}, 1000)).ok());
  engine->shutdown(false);
  EXPECT_EQ(engine->submit(make(2, {1}, 4)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(read(*engine, 1)[1].ids.size(), 50u);
  std::vector<Delta> rest;
  while (engine->poll(rest, milliseconds(10))) {
  }
  EXPECT_TRUE(rest.empty());

  auto endless = make_echo_engine({.fixed_tokens = 1 << 30});
  ASSERT_TRUE(endless->submit(make(1, {1}, 1 << 30)).ok());
  endless->shutdown(true);
  EXPECT_EQ(read(*endless, 1)[1].last.finish, FinishReason::kAbort);
}

TEST(Echo, ReaderThatStopsHoldsTheEngineNotTheAborts) {
  auto engine = make_echo_engine({.fixed_tokens = 1 << 30, .outbox_capacity = 16});
  ASSERT_TRUE(engine->submit(make(1, {1}, 1 << 30)).ok());
  EXPECT_TRUE(eventually([&] { return engine->stats().generated_tokens >= 16; }));
  std::this_thread::sleep_for(milliseconds(30));  // nothing more is to come
  const uint64_t held = engine->stats().generated_tokens;
  EXPECT_LE(held, 17u);
  std::vector<Delta> some;
  engine->poll(some, milliseconds(0));
  EXPECT_TRUE(eventually([&] { return engine->stats().generated_tokens > held; }));
  engine->abort(1);
  EXPECT_EQ(read(*engine, 1)[1].last.finish, FinishReason::kAbort);
}

TEST(Script, TheFirstMatchIsSaid) {
  EchoConfig config{.eos_token_id = 2};
  config.script = {{.match = "sum", .ids = {5, 6}}, {.match = "cut", .ids = {7, 8}, .natural = false}};
  auto engine = make_echo_engine(config);
  const auto ask = [](RequestId id, std::string said, int max_tokens) {
    Request r = make(id, {9}, max_tokens);
    r.last_said = std::move(said);
    r.ignore_eos = true;  // nothing goes on behind a script's end
    return r;
  };
  for (auto& r : {ask(1, "the sum", 9), ask(2, "cut", 9), ask(3, "other", 9), ask(4, "sum", 1)}) {
    ASSERT_TRUE(engine->submit(r).ok());
  }
  auto answers = read(*engine, 4);
  EXPECT_EQ(answers[1].ids, (std::vector<int32_t>{5, 6, 2}));
  EXPECT_EQ(answers[1].last.finish, FinishReason::kStop);
  EXPECT_EQ(answers[1].last.stop_token, 2);
  EXPECT_EQ(answers[2].ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(answers[2].last.finish, FinishReason::kLength);
  EXPECT_EQ(answers[3].last.finish, FinishReason::kError);
  EXPECT_EQ(answers[3].last.error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(answers[4].ids, std::vector<int32_t>{5});
  EXPECT_EQ(answers[4].last.finish, FinishReason::kLength);
}

TEST(Script, TokensKeepTheirPace) {
  EchoConfig config{.eos_token_id = 2};
  config.script = {{.match = "slow", .ids = {5, 6, 7}, .token_delay_ns = 20'000'000}, {.match = "", .ids = {8}}};
  auto engine = make_echo_engine(config);
  Request slow = make(1, {9}, 9);
  slow.last_said = "slow";
  const int64_t begin = monotonic_ns();
  ASSERT_TRUE(engine->submit(slow).ok());
  ASSERT_TRUE(engine->submit(make(2, {9}, 9)).ok());
  auto answers = read(*engine, 2);
  // Tokens come at multiples of the delay: three whole delays lie between the four of them.
  EXPECT_GE(monotonic_ns() - begin, 60'000'000);
  EXPECT_EQ(answers[1].ids.size(), 4u);
  EXPECT_LT(answers[2].last.times.finished, begin + 60'000'000) << "others are not held up";
}

}  // namespace
}  // namespace tern::engine
