#include "content/media/service/fair_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

namespace tern::content {
namespace {

TEST(FairPool, LanesTakeTurns) {
  std::mutex mutex;
  std::vector<int> order;
  std::promise<void> open;
  auto gate = open.get_future().share();
  {
    FairPool pool("test", 1, false);
    pool.submit(99, [gate] { gate.wait(); });
    const auto note = [&](int name) {
      return [&, name] {
        const std::lock_guard lock(mutex);
        order.push_back(name);
      };
    };
    for (int i = 0; i < 4; i++) pool.submit(1, note(10 + i));
    for (int i = 0; i < 2; i++) pool.submit(2, note(20 + i));
    open.set_value();
  }
  EXPECT_THAT(order, testing::ElementsAre(10, 20, 11, 21, 12, 13));
}

// A group whose tasks wait has its share of the threads; the others' tasks go on, and nothing is lost in the end.
TEST(FairPool, AGroupHasItsShareOfTheThreads) {
  std::promise<void> open, other_ran;
  const auto gate = open.get_future().share();
  std::atomic<int> waiting{0}, most{0}, ended{0};
  {
    FairPool pool("test", 4, false, 2);
    for (uint64_t queue = 1; queue <= 20; queue++) {
      pool.submit(queue, 1000, [&] {
        const int now = ++waiting;
        int before = most;
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        gate.wait();
        --waiting;
        ++ended;
      });
    }
    pool.submit(30, 2000, [&] { other_ran.set_value(); });
    other_ran.get_future().wait();
    EXPECT_EQ(ended, 0);
    open.set_value();
  }
  EXPECT_EQ(ended, 20);
  EXPECT_LE(most, 2);
}

TEST(FairPool, RunsEverythingBeforeItEnds) {
  std::atomic<int> runs{0};
  {
    FairPool pool("test", 4, true);
    for (int i = 0; i < 100; i++) {
      pool.submit(i, [&] {
        runs++;
        pool.submit(7, [&] { runs++; });
      });
    }
  }
  EXPECT_EQ(runs, 200);
}

TEST(FairPool, SpreadsWorkOverIdleThreads) {
  FairPool pool("test", 4, false);
  std::promise<void> ended;
  std::vector<std::atomic<int>> runs(100);
  std::atomic<int> together{0}, most{0};
  pool.submit(1, [&] {
    pool.spread(1, 100, [&](int i) {
      const int now = ++together;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      if (i < 4) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // others find work beside it
      ++runs[static_cast<size_t>(i)];
      --together;
    });
    ended.set_value();
  });
  ended.get_future().wait();
  for (const auto& n : runs) EXPECT_EQ(n, 1);
  EXPECT_GT(most, 1);
}

// Every thread spreads at once and finds no helper: each does its own work.
TEST(FairPool, SpreadsOnABusyPool) {
  std::atomic<int> runs{0};
  {
    FairPool pool("test", 2, false);
    for (int task = 0; task < 20; task++) {
      pool.submit(task, [&] { pool.spread(1, 7, [&](int) { runs++; }); });
    }
  }
  EXPECT_EQ(runs, 140);
}

// What comes up while a task runs is begun in its order, by others while the task goes on.
TEST(SharedWork, IsBegunWhileMoreIsOffered) {
  FairPool pool("test", 3, false);
  std::promise<void> ended;
  std::vector<std::atomic<int>> runs(50);
  std::promise<void> first;
  pool.submit(1, [&] {
    const auto self = std::this_thread::get_id();
    {
      SharedWork work(pool, 1, [&](int i) {
        if (i == 0) {
          EXPECT_NE(std::this_thread::get_id(), self);
          first.set_value();
        }
        ++runs[static_cast<size_t>(i)];
      });
      work.offer(0);
      first.get_future().wait();  // by a helper, since this thread does not help
      for (int i = 1; i < 50; i++) work.offer(i);
    }
    for (const auto& n : runs) EXPECT_EQ(n, 1);
    ended.set_value();
  });
  ended.get_future().wait();
}

TEST(SharedWork, OneThreadHelpsItself) {
  std::vector<int> order;
  {
    FairPool pool("test", 1, false);
    pool.submit(1, [&] {
      SharedWork work(pool, 1, [&](int i) { order.push_back(i); });
      for (int i = 0; i < 4; i++) work.offer(i);
      EXPECT_TRUE(order.empty());
      work.help(2);
      EXPECT_THAT(order, testing::ElementsAre(0, 1));
      work.offer(4);
      work.finish();
      EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4));
      work.offer(5);
    });
  }
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace tern::content
