// Orders to the engine: pauses.
#include <gtest/gtest.h>

#include "base/tests/eventually.h"
#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

Request endless(const FakeModel&, RequestId id) {
  Request r = Harness::request(id, {static_cast<int32_t>(id), 2, 3}, 120);
  r.ignore_eos = true;
  return r;
}

Status tell(EngineClient& engine, Control what) { return engine.control({what, {}}).get(); }

TEST(EngineControl, APauseEndsWhatIsOpenWithItsTokens) {
  EngineConfig config = Harness::small();
  config.plan_delay_ns = 2'000'000;
  Harness h(config);
  for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(h->submit(endless(h.fake(), id)).ok());
  ASSERT_TRUE(eventually([&] { return h->stats().generated_tokens > 6; }));
  ASSERT_TRUE(tell(*h.operator->(), Control::kPause).ok());
  h.read(3);
  for (auto& [id, a] : h.answers) {
    EXPECT_EQ(a.last.finish, FinishReason::kAbort);
    EXPECT_FALSE(a.ids.empty());
    const auto want = h.fake().continuation({static_cast<int32_t>(id), 2, 3}, static_cast<int>(a.ids.size()), -1);
    EXPECT_EQ(a.ids, want);
  }
  const uint64_t steps = h->stats().steps;
  ASSERT_TRUE(h->submit(Harness::request(4, {9, 2, 3}, 5)).ok());
  ASSERT_TRUE(tell(*h.operator->(), Control::kPause).ok());  // once more: what waits is open
  h.read(4);
  EXPECT_EQ(h.answers.at(4).last.finish, FinishReason::kAbort);
  ASSERT_TRUE(h->submit(Harness::request(5, {9, 2, 3}, 5)).ok());
  ASSERT_TRUE(eventually([&] { return h->stats().waiting == 1; }));
  EXPECT_EQ(h->stats().steps, steps) << "nothing runs";
  ASSERT_TRUE(tell(*h.operator->(), Control::kResume).ok());
  h.read(5);
  EXPECT_EQ(h.answers.at(5).ids, h.fake().continuation({9, 2, 3}, 5, 0));
}

TEST(EngineControl, TheReasonIsSaid) {
  Harness h(Harness::small());
  ASSERT_TRUE(tell(*h.operator->(), Control::kPause).ok());
  ASSERT_TRUE(h->submit(Harness::request(1, {9, 2, 3}, 5)).ok());
  ASSERT_TRUE(h->control({Control::kPause, make_error(ErrorCode::kInvalidArgument, "cleared")}).get().ok());
  h.read(1);
  EXPECT_EQ(h.answers.at(1).last.finish, FinishReason::kError);
}

// What has no memory is not used, and comes back empty.
void give_and_take(Harness& h) {
  EngineClient& engine = *h.operator->();
  EXPECT_FALSE(tell(engine, Control::kGiveCache).ok()) << "not paused";
  const std::vector<int32_t> prompt(40, 5);
  ASSERT_TRUE(h->submit(Harness::request(1, prompt, 4)).ok());
  h.read(1);
  ASSERT_TRUE(h->submit(Harness::request(2, prompt, 4)).ok());
  h.read(2);
  EXPECT_GT(h.answers.at(2).last.cached_tokens, 0);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(tell(engine, Control::kPause).ok());
    ASSERT_TRUE(tell(engine, Control::kForget).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(tell(engine, Control::kGiveCache).ok());
    EXPECT_FALSE(tell(engine, Control::kResume).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(tell(engine, Control::kTakeCache).ok());
    ASSERT_TRUE(tell(engine, Control::kResume).ok());
    const RequestId id = static_cast<RequestId>(3 + round);
    ASSERT_TRUE(h->submit(Harness::request(id, prompt, 4)).ok());
    h.read(static_cast<size_t>(id));
    EXPECT_EQ(h.answers.at(id).last.cached_tokens, 0);
    EXPECT_EQ(h.answers.at(id).ids, h.answers.at(1).ids);
  }
}

TEST(EngineControl, TheCacheGoesAndComes) {
  Harness h(Harness::small());
  give_and_take(h);
}

TEST(EngineControl, TheCachesOfRanksGoAndCome) {
  Harness h(Harness::small(), FakeOptions{}, 2);
  give_and_take(h);
}

// Two engines take an order together; one that has ended refuses it.
TEST(EngineControl, SeveralEnginesAndAnEnd) {
  Harness h(Harness::small(), FakeOptions{}, 1, nullptr, 2);
  for (RequestId id = 1; id <= 4; ++id) ASSERT_TRUE(h->submit(endless(h.fake(), id)).ok());
  ASSERT_TRUE(tell(*h.operator->(), Control::kPause).ok());
  h.read(4);
  for (auto& [id, a] : h.answers) EXPECT_EQ(a.last.finish, FinishReason::kAbort);
  ASSERT_TRUE(h->submit(Harness::request(9, {9, 2, 3}, 5)).ok());
  h->shutdown(false);  // nobody would ever resume it
  h.read(5);
  EXPECT_EQ(h.answers.at(9).last.finish, FinishReason::kAbort);
  ASSERT_TRUE(eventually([&] { return !tell(*h.operator->(), Control::kResume).ok(); }));
}

}  // namespace
}  // namespace tern::engine
