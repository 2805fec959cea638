// Deltas to sinks that are no I/O threads, beside a server and alone.
#include "serve/core/dispatcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "serve/tests/support.h"

namespace tern::serve::testing {
namespace {

using namespace std::chrono_literals;

class Collector final : public Sink {
 public:
  bool take(std::vector<engine::Delta>& news) override {
    ++offers;
    if (full) return false;
    std::lock_guard lock(mutex_);
    for (engine::Delta& delta : news) {
      if (delta.finish != engine::FinishReason::kNone) ++ended;
      for (const auto& token : delta.tokens) ids_.push_back(token.id);
    }
    return true;
  }
  void engine_gone() override { gone = true; }
  std::vector<int32_t> ids() const {
    std::lock_guard lock(mutex_);
    return ids_;
  }

  std::atomic<bool> full{false}, gone{false};
  std::atomic<int> ended{0}, offers{0};

 private:
  mutable std::mutex mutex_;
  std::vector<int32_t> ids_;
};

engine::Request request(engine::RequestId id, std::vector<int32_t> prompt) {
  engine::Request r;
  r.id = id;
  r.prompt = std::move(prompt);
  r.max_tokens = 100;
  return r;
}

TEST(Dispatcher, SinksGetTheirOwnAndAFullOneHoldsNobodyUp) {
  const auto engine = engine::make_echo_engine(test_engine_config());
  Dispatcher dispatcher(*engine);
  Collector slow, quick;
  const int first = dispatcher.add(slow), second = dispatcher.add(quick);
  std::atomic<bool> told{false};
  dispatcher.start([&] { told = true; });
  slow.full = true;
  ASSERT_TRUE(engine->submit(request(dispatcher.next_id(first), {5, 6, 7})).ok());
  ASSERT_TRUE(eventually([&] { return slow.offers > 3; }));
  ASSERT_TRUE(engine->submit(request(dispatcher.next_id(second), {8, 9})).ok());
  ASSERT_TRUE(eventually([&] { return quick.ended == 1; }));
  EXPECT_EQ(quick.ids(), (std::vector<int32_t>{8, 9, 903}));
  EXPECT_TRUE(slow.ids().empty());
  slow.full = false;
  ASSERT_TRUE(eventually([&] { return slow.ended == 1; }));
  EXPECT_EQ(slow.ids(), (std::vector<int32_t>{5, 6, 7, 903})) << "in order, nothing lost";

  dispatcher.remove(second);
  ASSERT_TRUE(engine->submit(request(dispatcher.next_id(second), {8, 9})).ok());
  ASSERT_TRUE(engine->submit(request(dispatcher.next_id(first), {5})).ok());
  ASSERT_TRUE(eventually([&] { return slow.ended == 2; }));
  EXPECT_EQ(quick.ended, 1) << "nothing reaches a removed sink";
  engine->shutdown(true);
  EXPECT_TRUE(eventually([&] { return slow.gone.load(); }));
  EXPECT_TRUE(told && !quick.gone);
}

TEST(Dispatcher, ACallerInTheProcessAsksBesideHttp) {
  TestServer server;
  Dispatcher& dispatcher = server.server().dispatcher();
  Collector caller;
  const int sink = dispatcher.add(caller);
  ASSERT_GE(sink, 2) << "behind the workers";
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(server.engine().submit(request(dispatcher.next_id(sink), {5, 6})).ok());
    const auto reply = Client(server.port()).post("/v1/completions", R"({"prompt":[7,8,9],"max_tokens":3})");
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.json().as_object().at("usage").at("completion_tokens").as_int64(), 3);
  }
  ASSERT_TRUE(eventually([&] { return caller.ended == 20; }));
  EXPECT_EQ(caller.ids().size(), 60u);
  dispatcher.remove(sink);
}

TEST(Dispatcher, HasRoomForSoManySinks) {
  const auto engine = engine::make_echo_engine(test_engine_config());
  Dispatcher dispatcher(*engine);
  Collector sink;
  for (int i = 0; i < Dispatcher::kMaxSinks; ++i) EXPECT_EQ(dispatcher.add(sink), i);
  EXPECT_LT(dispatcher.add(sink), 0);
  dispatcher.remove(7);
  EXPECT_EQ(dispatcher.add(sink), 7);
  EXPECT_NE(dispatcher.next_id(7), dispatcher.next_id(7));
  EXPECT_EQ(dispatcher.next_id(7) & 0xff, 7u);
  engine->shutdown(true);
}

}  // namespace
}  // namespace tern::serve::testing
