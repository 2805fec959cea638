#include "content/media/service/byte_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tern::content {
namespace {

using testing::ElementsAre;

class ByteBudgetTest : public testing::Test {
 protected:
  void want(ByteBudget* budget, int name, size_t bytes, const bool* given_up = nullptr) {
    budget->acquire(
        bytes, [given_up] { return given_up != nullptr && *given_up; },
        [this, name](bool taken) { calls_.push_back(taken ? name : -name); });
  }
  std::vector<int> calls_;
};

TEST_F(ByteBudgetTest, WaitsForRoom) {
  ByteBudget budget(10);
  want(&budget, 1, 6);
  want(&budget, 2, 6);
  EXPECT_THAT(calls_, ElementsAre(1));
  EXPECT_EQ(budget.waiting(), 1u);
  budget.release(6);
  EXPECT_THAT(calls_, ElementsAre(1, 2));
  EXPECT_EQ(budget.in_use(), 6u);
}

TEST_F(ByteBudgetTest, SmallOnesPassALargeOneButNotForEver) {
  ByteBudget budget(10);
  want(&budget, 1, 5);
  want(&budget, 2, 10);
  int passed = 0;
  for (int i = 0; i < 200; i++) {
    const size_t before = calls_.size();
    want(&budget, 100 + i, 1);
    if (calls_.size() == before) break;
    passed++;
    budget.release(1);
  }
  EXPECT_EQ(passed, 64);
  budget.release(5);
  EXPECT_EQ(calls_[1 + passed], 2);  // the large one is next
}

TEST_F(ByteBudgetTest, AnOwnerBeyondItsShareIsPassedWithoutEnd) {
  ByteBudget budget(1000, 750);
  const auto own = [&](int name, uint64_t owner, size_t bytes) {
    budget.acquire(bytes, owner, nullptr, [this, name](bool) { calls_.push_back(name); });
  };
  own(1, 7, 700);
  own(2, 7, 100);  // waits for its own
  for (int i = 0; i < 200; i++) {
    own(100 + i, 8, 200);
    EXPECT_EQ(calls_.back(), 100 + i);
    budget.release(200, 8);
  }
  EXPECT_EQ(budget.waiting(), 1u);
  budget.release(700, 7);
  EXPECT_EQ(calls_.back(), 2);
  budget.release(100, 7);
  own(3, 7, 1000);  // who holds nothing may have all
  EXPECT_EQ(calls_.back(), 3);
  EXPECT_EQ(budget.in_use(), 1000u);
}

TEST(ByteCounter, CountsForAllAndForEach) {
  ByteCounter counter(100, 75);
  EXPECT_TRUE(counter.take(75, 1));
  EXPECT_FALSE(counter.take(1, 1));
  EXPECT_TRUE(counter.take(25, 2));
  EXPECT_FALSE(counter.take(1, 0));
  counter.give(75, 1);
  EXPECT_TRUE(counter.take(75, 0)) << "nobody's bytes have no share";
  EXPECT_EQ(counter.in_use(), 100u);
}

TEST_F(ByteBudgetTest, WhoHasGivenUpLeavesWithoutBytes) {
  ByteBudget budget(10);
  bool given_up = false;
  want(&budget, 1, 10);
  want(&budget, 2, 10, &given_up);
  want(&budget, 3, 10);
  given_up = true;
  budget.poke();
  EXPECT_THAT(calls_, ElementsAre(1, -2));
  budget.release(10);
  EXPECT_THAT(calls_, ElementsAre(1, -2, 3));
}

TEST_F(ByteBudgetTest, ReclaimsWhatIsKeptWithoutNeed) {
  ByteBudget budget(10);
  size_t kept = 4;
  budget.set_reclaim([&](size_t shortage) {
    EXPECT_EQ(shortage, 3u);
    const size_t freed = std::exchange(kept, 0);
    if (freed > 0) budget.release(freed);
  });
  want(&budget, 1, 4);  // what is kept
  want(&budget, 2, 3);
  want(&budget, 3, 6);
  EXPECT_THAT(calls_, ElementsAre(1, 2, 3));
  EXPECT_EQ(budget.in_use(), 9u);
}

TEST_F(ByteBudgetTest, RandomOrderNeverExceedsAndAlwaysDrains) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; round++) {
    ByteBudget budget(100);
    std::vector<size_t> held;
    int taken = 0;
    constexpr int kWanted = 200;
    for (int i = 0; i < kWanted; i++) {
      const size_t bytes = 1 + random() % 100;
      budget.acquire(bytes, nullptr, [&, bytes](bool) {
        held.push_back(bytes);
        taken++;
      });
      EXPECT_LE(budget.in_use(), 100u);
      if (random() % 2 == 0 && !held.empty()) {
        const size_t bytes_back = held.back();
        held.pop_back();
        budget.release(bytes_back);
      }
    }
    while (!held.empty()) {
      const size_t bytes_back = held.back();
      held.pop_back();
      budget.release(bytes_back);
    }
    EXPECT_EQ(taken, kWanted);
    EXPECT_EQ(budget.in_use(), 0u);
  }
}

}  // namespace
}  // namespace tern::content
