#include "device/cpu_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "device/communicator.h"

namespace tern::device {
namespace {

template <class F>
void on_ranks(int ranks, F&& f) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { f(r); });
  for (std::thread& t : threads) t.join();
}

TEST(CpuExchange, RanksReadWhatAllHaveBrought) {
  for (const int ranks : {2, 4, 8}) {
    CpuExchange exchange(ranks, false);
    on_ranks(ranks, [&](int rank) {
      int mine = 0;
      for (int round = 1; round <= 500; ++round) {
        mine = round * 100 + rank;
        ASSERT_TRUE(exchange.begin(rank, {&mine, 0, 0, 0}).ok());
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(*static_cast<const int*>(exchange.part(r).data), round * 100 + r);
        ASSERT_TRUE(exchange.end(rank).ok());
        *static_cast<int*>(exchange.stage(rank)) = -mine;
        ASSERT_TRUE(exchange.share(rank).ok());
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(*static_cast<const int*>(exchange.shared(rank, r)), -(round * 100 + r));
      }
    });
  }
}

// A rank that sleeps between its meetings: the others sleep too, and nobody is lost.
TEST(CpuExchange, LateRanksAreWaitedFor) {
  for (const bool spin : {false, true}) {
    CpuExchange exchange(3, spin);
    on_ranks(3, [&](int rank) {
      for (int round = 0; round < 12; ++round) {
        if (round % 3 == rank) std::this_thread::sleep_for(std::chrono::microseconds(700));
        ASSERT_TRUE(exchange.begin(rank, {}).ok());
        ASSERT_TRUE(exchange.end(rank).ok());
      }
    });
  }
}

TEST(CpuExchange, AFailedRankLetsAllGo) {
  for (const bool spin : {false, true}) {
    const auto group = make_cpu_communicators(4, spin);
    std::vector<Status> statuses(4);
    on_ranks(4, [&](int rank) {
      CpuExchange& exchange = *group->of(rank).cpu;
      ASSERT_TRUE(exchange.begin(rank, {}).ok());
      (void)exchange.end(rank).ok();  // slow ranks may see the failure here already
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        group->fail();
      } else {
        statuses[static_cast<size_t>(rank)] = exchange.begin(rank, {});
      }
    });
    for (const int rank : {0, 1, 3}) {
      const Status& s = statuses[static_cast<size_t>(rank)];
      ASSERT_FALSE(s.ok());
      EXPECT_EQ(s.error().message, "another rank has failed");
    }
    // For good.
    EXPECT_FALSE(group->of(2).cpu->begin(2, {}).ok());
    EXPECT_FALSE(group->of(0).cpu->share(0).ok());
  }
}

}  // namespace
}  // namespace tern::device
