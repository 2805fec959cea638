#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/tests/eventually.h"
#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

std::vector<std::string>& logged() {
  static std::vector<std::string> lines;
  return lines;
}
void keep_line(LogChannel channel, LogLevel, const char*, int, std::string_view message) {
  if (channel == LogChannel::kFastdeploy) logged().emplace_back(message);
}

TEST(Engine, ContinuesGreedily) {
  Harness h(Harness::small());
  for (RequestId id = 1; id <= 20; ++id) {
    ASSERT_TRUE(h->submit(Harness::request(id, {static_cast<int32_t>(id), 5, 6}, 30)).ok());
  }
  h.read(20);
  for (auto& [id, a] : h.answers) {
    const auto want = h.fake().continuation({static_cast<int32_t>(id), 5, 6}, 30, 0);
    EXPECT_EQ(a.ids, want);
    const bool eos = want.back() == 0;
    EXPECT_EQ(a.last.finish, eos ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(a.last.stop_token, eos ? 0 : -1);
    EXPECT_EQ(a.last.prompt_tokens, 3);
    EXPECT_EQ(a.deltas, static_cast<int>(a.ids.size()));
    EXPECT_LE(a.last.times.arrival, a.last.times.scheduled);
    EXPECT_LT(a.last.times.scheduled, a.last.times.first_token);
    EXPECT_LE(a.last.times.first_token, a.last.times.finished);
  }
  EXPECT_EQ(h->stats().running, 0);
  EXPECT_EQ(h->stats().prompt_tokens, 60u);
  EXPECT_EQ(h->stats().total_blocks, 64);
}

TEST(Engine, StopsAsAsked) {
  Harness h(Harness::small());
  const std::vector<int32_t> prompt{3, 1, 4};
  const auto text = h.fake().continuation(prompt, 40, -1);
  Request stop_id = Harness::request(1, prompt, 40), sequence = Harness::request(2, prompt, 40);
  Request ignoring = Harness::request(3, prompt, 40), context = Harness::request(4, prompt, 1 << 20);
  stop_id.stop_token_ids = {text[7], 1 << 30, -5};
  sequence.stop_sequences = {{text[2], text[5]}, {text[8], text[9]}};
  for (Request* r : {&stop_id, &sequence, &ignoring, &context}) r->ignore_eos = true;
  Request least = stop_id;
  least.id = 5;
  least.sampling.min_tokens = 12;
  for (Request* r : {&stop_id, &sequence, &ignoring, &context, &least}) ASSERT_TRUE(h->submit(*r).ok());
  h.read(5);
  EXPECT_EQ(h.answers[1].ids, std::vector<int32_t>(text.begin(), text.begin() + 8));
  EXPECT_EQ(h.answers[1].last.stop_token, text[7]);
  EXPECT_EQ(h.answers[2].ids, std::vector<int32_t>(text.begin(), text.begin() + 10));
  EXPECT_EQ(h.answers[2].last.stop_sequence, 1);
  EXPECT_EQ(h.answers[3].ids, text);
  EXPECT_EQ(h.answers[3].last.finish, FinishReason::kLength);
  EXPECT_EQ(h.answers[4].ids.size(), 157u);  // the context of 160
  EXPECT_EQ(h.answers[4].last.finish, FinishReason::kLength);
  // Masked until 12 tokens are out: the stop id is not said before.
  EXPECT_GE(h.answers[5].ids.size(), 12u);
  for (size_t i = 0; i + 1 < 12; ++i) EXPECT_NE(h.answers[5].ids[i], text[7]);
}

TEST(Engine, RefusesBadRequestsAlone) {
  Harness h(Harness::small());
  std::vector<Request> bad(9, Harness::request(0, {1, 2, 3}, 5));
  bad[0].prompt.clear();
  bad[1].prompt = {97};
  bad[2].prompt = {-1};
  bad[3].prompt.assign(160, 1);
  bad[4].max_tokens = 0;
  bad[5].sampling.temperature = std::nanf("");
  bad[6].sampling.top_p = 1.5f;
  bad[7].sampling.logit_bias = {{97, 1.0f}};
  bad[8].stop_sequences = {{}};
  for (size_t i = 0; i < bad.size(); ++i) {
    bad[i].id = i + 1;
    ASSERT_TRUE(h->submit(bad[i]).ok());
  }
  h.read(bad.size());
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(h.answers[i + 1].last.finish, FinishReason::kError) << i;
    EXPECT_FALSE(h.answers[i + 1].last.error.message.empty());
  }
  EXPECT_EQ(h.answers[4].last.error.code, ErrorCode::kTooLarge);
}

TEST(Engine, RefusesAnIdThatIsInUse) {
  std::atomic<int64_t> pace{1'000'000};
  FakeOptions options;
  options.step_ns = &pace;
  Harness h(Harness::small(), options);
  for (int twice = 0; twice < 2; ++twice) {
    Request r = Harness::request(100, {1, 2, 3}, 150);
    r.ignore_eos = true;
    ASSERT_TRUE(h->submit(std::move(r)).ok());
  }
  std::vector<Delta> deltas;
  int refused = 0, ended = 0;
  for (int64_t limit = monotonic_ns() + 10'000'000'000; ended < 2 && monotonic_ns() < limit; deltas.clear()) {
    h->poll(deltas, milliseconds(20));
    for (const Delta& d : deltas) {
      refused += d.finish == FinishReason::kError && d.error.message == "duplicated request_id";
      ended += d.finish != FinishReason::kNone;
    }
  }
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(ended, 2);
}

TEST(Engine, NanEndsOneRequestOnly) {
  FakeOptions options;
  options.nan_token = 13;
  Harness h(Harness::small(), options);
  ASSERT_TRUE(h->submit(Harness::request(1, {5, 13}, 10)).ok());
  ASSERT_TRUE(h->submit(Harness::request(2, {5, 14}, 4)).ok());
  h.read(2);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kError);
  EXPECT_NE(h.answers[1].last.error.message.find("not a number"), std::string::npos);
  EXPECT_EQ(h.answers[2].ids, h.fake().continuation({5, 14}, 4, 0));
  EXPECT_TRUE(h->healthy());
}

TEST(Engine, AFailedStepEndsEverythingCleanly) {
  FakeOptions options;
  options.fail_token = 13;
  std::atomic<int64_t> pace{200'000};
  options.step_ns = &pace;
  Harness h(Harness::small(), options);
  Request first = Harness::request(1, {5}, 150);
  first.ignore_eos = true;
  first.sampling.bad_words = {13};
  ASSERT_TRUE(h->submit(first).ok());
  while (h.answers.empty()) h.take(milliseconds(10));
  ASSERT_TRUE(h->submit(Harness::request(2, {13}, 10)).ok());
  h.read(2);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kError);
  EXPECT_EQ(h.answers[2].last.finish, FinishReason::kError);
  while (h->healthy()) std::this_thread::yield();
  EXPECT_EQ(h->submit(Harness::request(3, {1}, 1)).error().code, ErrorCode::kUnavailable);
  h->shutdown(false);
  while (h.take(milliseconds(10))) {
  }
}

TEST(Engine, DeadlinesAndAborts) {
  std::atomic<int64_t> pace{1'000'000};
  FakeOptions options;
  options.step_ns = &pace;
  Harness h(Harness::small(64, 2), options);
  for (RequestId id = 1; id <= 4; ++id) {  // two run, two wait
    Request r = Harness::request(id, {1, static_cast<int32_t>(id)}, 150);
    r.ignore_eos = true;
    if (id % 2 == 0) r.deadline_ns = monotonic_ns() + 20'000'000;
    ASSERT_TRUE(h->submit(r).ok());
  }
  h->abort(3);
  h->abort(77);
  h.read(3);
  h->abort(1);
  h.read(4);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kAbort);
  EXPECT_EQ(h.answers[3].last.finish, FinishReason::kAbort);
  for (RequestId id : {2, 4}) {
    EXPECT_EQ(h.answers[id].last.finish, FinishReason::kError);
    EXPECT_EQ(h.answers[id].last.error.code, ErrorCode::kCancelled);
  }
  EXPECT_LT(h.answers[1].ids.size(), 150u);
}

TEST(Engine, DrainsAndEnds) {
  Harness h(Harness::small());
  for (RequestId id = 1; id <= 30; ++id) {
    Request r = Harness::request(id, {1, static_cast<int32_t>(id)}, 20);
    r.ignore_eos = true;
    ASSERT_TRUE(h->submit(r).ok());
  }
  h->shutdown(false);
  EXPECT_EQ(h->submit(Harness::request(99, {1}, 1)).error().code, ErrorCode::kUnavailable);
  while (h.take(milliseconds(20))) {
  }
  EXPECT_EQ(h.ended, 30u);
  for (auto& [id, a] : h.answers) EXPECT_EQ(a.ids.size(), 20u);

  std::atomic<int64_t> pace{2'000'000};
  FakeOptions options;
  options.step_ns = &pace;
  Harness slow(Harness::small(), options);
  for (RequestId id = 1; id <= 30; ++id) ASSERT_TRUE(slow->submit(Harness::request(id, {5}, 150)).ok());
  while (slow.answers.empty()) slow.take(milliseconds(20));
  slow->shutdown(true);
  while (slow.take(milliseconds(20))) {
  }
  EXPECT_EQ(slow.ended, 30u);
}

TEST(Engine, ASlowReaderHoldsStepsNotAborts) {
  EngineConfig c = Harness::small();
  c.outbox_capacity = 20;
  Harness h(c);
  for (RequestId id = 1; id <= 4; ++id) {
    Request r = Harness::request(id, {1, static_cast<int32_t>(id)}, 150);
    r.ignore_eos = true;
    ASSERT_TRUE(h->submit(r).ok());
  }
  EXPECT_TRUE(eventually([&] { return h->stats().generated_tokens >= 20; }));
  std::this_thread::sleep_for(milliseconds(50));  // nothing more is to come
  EXPECT_LE(h->stats().generated_tokens, 28u);    // the capacity and the rows of two steps
  h->abort(1);
  std::this_thread::sleep_for(milliseconds(10));  // the engine is asked while it is held, not after
  h.read(4);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kAbort);
  EXPECT_EQ(h.answers[2].ids.size(), 150u);
}

TEST(Engine, RefusesWhenTheInboxIsFull) {
  EngineConfig c = Harness::small(64, 1);
  c.inbox_capacity = 4;
  c.outbox_capacity = 1;
  std::atomic<int64_t> pace{1'000'000};
  FakeOptions options;
  options.step_ns = &pace;
  Harness h(c, options);
  size_t taken = 0;
  bool refused = false;
  for (RequestId id = 1; id <= 1'000'000 && !refused; ++id) {
    Status ok = h->submit(Harness::request(id, {1}, 1));
    taken += ok.ok();
    refused = !ok.ok() && ok.error().code == ErrorCode::kResourceExhausted;
  }
  EXPECT_TRUE(refused);
  h->shutdown(true);
  while (h.take(milliseconds(20))) {
  }
  EXPECT_EQ(h.ended, taken);
}

TEST(Engine, SaysWhichFlagToChangeWhenMemoryIsShort) {
  FakeModel model({});
  auto device = device::make_cpu_device({1, false});
  EngineConfig c = Harness::small(5);
  auto engine = Engine::start(c, model, **device);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(engine.error().message.find("current device block num too small"), std::string::npos);
  EXPECT_NE(engine.error().message.find("--max-model-len"), std::string::npos);
  c.num_blocks_override = 0;
  c.scheduler.prefix_caching = false;
  set_log_sink(keep_line);
  engine = Engine::start(c, model, **device);
  set_log_sink(nullptr);
  ASSERT_TRUE(engine.ok());
  EXPECT_THAT(logged(), testing::Contains("Reset block num, the total_block_num:176, prefill_kvcache_block_num:176"));
  engine->reset();
  c.num_blocks_override = 100;
  c.scheduler.v1 = false;
  c.scheduler.kv_cache_ratio = 0.5;
  engine = Engine::start(c, model, **device);
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->blocks().total, 100);
  EXPECT_EQ((*engine)->blocks().prefill, 50);
  c.scheduler.kv_cache_ratio = 0.2;  // 20 blocks for prompts, 22 needed
  EXPECT_FALSE(Engine::start(c, model, **device).ok());
}

TEST(Engine, BlocksByMemoryHoldNoMoreThanCanBeUsed) {
  FakeModel model({});
  auto device = device::make_cpu_device({1, false});
  EngineConfig c = Harness::small(0);
  c.scheduler.prefix_caching = false;
  auto engine = Engine::start(c, model, **device);
  ASSERT_TRUE(engine.ok());
  // By memory: no more than all sequences at full length can use.
  EXPECT_EQ((*engine)->blocks().total, 8 * (160 / 8 + 2));
}

}  // namespace
}  // namespace tern::engine
