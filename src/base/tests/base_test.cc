#include <gtest/gtest.h>

#include <thread>

#include "base/bf16.h"
#include "base/bounded_queue.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/nearest_name.h"
#include "base/task.h"
#include "base/thread_pool.h"

namespace tern {
namespace {

Expected<int> half(int v) {
  if (v % 2 != 0) return make_error(ErrorCode::kInvalidArgument, "odd", "v");
  return v / 2;
}
Expected<int> quarter(int v) {
  TERN_ASSIGN_OR_RETURN(int h, half(v));
  return half(h);
}

TEST(Expected, PassesValuesAndErrors) {
  EXPECT_EQ(*quarter(12), 3);
  auto r = quarter(6);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().param, "v");
}

TEST(Checked, OverflowIsNothing) {
  EXPECT_FALSE(checked_mul<uint64_t>(1ull << 40, 1ull << 40));
  EXPECT_EQ(checked_mul<uint64_t>(1ull << 20, 1ull << 20), 1ull << 40);
  EXPECT_FALSE((checked_cast<int32_t, int64_t>(int64_t{1} << 40)));
  EXPECT_EQ((checked_cast<int32_t, int64_t>(-5)), -5);
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> q(2);
  EXPECT_TRUE(q.try_push(1));
  EXPECT_TRUE(q.try_push(2));
  EXPECT_FALSE(q.try_push(3));
  q.close();
  EXPECT_FALSE(q.push(4));
  EXPECT_EQ(q.pop(), 1);
  EXPECT_EQ(q.pop(), 2);
  EXPECT_EQ(q.pop(), std::nullopt);
}

TEST(BoundedQueue, ManyProducersLoseNothing) {
  BoundedQueue<int> q(8);
  std::vector<std::thread> producers;
  for (int t = 0; t < 4; ++t)
    producers.emplace_back([&] {
      for (int i = 1; i <= 1000; ++i) q.push(i);
    });
  long sum = 0;
  for (int i = 0; i < 4000; ++i) sum += *q.pop();
  for (auto& p : producers) p.join();
  EXPECT_EQ(sum, 4 * 500500);
}

TEST(ThreadPool, FinishesQueuedTasksOnStop) {
  std::atomic<int> done{0};
  ThreadPool pool("test", 2, 64);
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(pool.try_submit([&] { ++done; }));
  pool.stop();
  EXPECT_EQ(done, 32);
  EXPECT_FALSE(pool.try_submit([] {}));
}

TEST(ThreadPool, RefusedTasksAreLeftAlone) {
  ThreadPool pool("test", 1, 4);
  pool.stop();
  auto word = std::make_unique<int>(0);
  int* const seen = word.get();
  Task task = [w = std::move(word)] { ++*w; };
  EXPECT_FALSE(pool.try_submit(task));
  task();
  EXPECT_EQ(*seen, 1);
}

TEST(Task, HoldsWhatCanOnlyBeMoved) {
  UniqueFunction<int(std::unique_ptr<int>)> plus = [one = std::make_unique<int>(1)](std::unique_ptr<int> n) {
    return *n + *one;
  };
  auto moved = std::move(plus);
  EXPECT_FALSE(plus);
  EXPECT_EQ(moved(std::make_unique<int>(4)), 5);
  moved = nullptr;
  EXPECT_FALSE(moved);
}

TEST(NearestName, FindsWhatIsSpelledAlike) {
  const std::vector<std::string_view> names = {"serve", "chat", "cart", "verify"};
  EXPECT_EQ(nearest_name("chart", names), "chat") << "the first of two at the same distance";
  EXPECT_EQ(nearest_name("srve", names, 1), "serve");
  EXPECT_EQ(nearest_name("srv", names, 1), "") << "two letters are missing";
  EXPECT_EQ(nearest_name("", names, 4), "chat");
  EXPECT_EQ(nearest_name("zzzzzz", names, 3), "");
  EXPECT_EQ(nearest_name("zzzzzz", names), "serve");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(nearest_name(std::string(1000, 'x'), names, 100), "") << "long names are cut";
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::infinity())), std::numeric_limits<float>::infinity());
  EXPECT_NE(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN())), 0.0f);
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0x0001), 5.9604644775390625e-8f);
  EXPECT_EQ(half_to_float(0xfbff), -65504.0f);
}

// The published SipHash-2-4-128 vector: key 00..0f, empty message.
TEST(SipHash, MatchesPublishedVectors) {
  const HashKey key{0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};
  const Hash128 empty = siphash128(key, "", 0);
  EXPECT_EQ(empty.lo, 0xe6a825ba047f81a3ULL);
  EXPECT_EQ(empty.hi, 0x930255c71472f66dULL);
  unsigned char bytes[15];
  for (int i = 0; i < 15; ++i) bytes[i] = static_cast<unsigned char>(i);
  EXPECT_EQ(siphash128(key, bytes, 15).lo, 0x11a8b03399e99354ULL);
}

}  // namespace
}  // namespace tern
