#include "content/media/fair_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>

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

}  // namespace
}  // namespace tern::content
