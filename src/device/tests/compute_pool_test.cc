#include "device/compute_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "device/topology.h"

namespace tern::device {
namespace {

TEST(ComputePool, EveryPartRunsOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ComputePool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int parts : {0, 1, 2, 3, 7, 100}) {
      for (const bool dynamic : {false, true}) {
        std::vector<int> hits(static_cast<size_t>(parts), 0);
        auto body = [&](int p) { ++hits[static_cast<size_t>(p)]; };
        if (dynamic) {
          pool.parallel_dynamic(parts, body);
        } else {
          pool.parallel(parts, body);
        }
        for (const int h : hits) EXPECT_EQ(h, 1);
      }
    }
  }
}

TEST(ComputePool, AllThreadsTakePart) {
  ComputePool pool(3);
  std::atomic<int> inside{0};
  std::vector<std::thread::id> ids(3);
  // Each part waits for the others: three threads must be in at once.
  pool.parallel(3, [&](int p) {
    ids[static_cast<size_t>(p)] = std::this_thread::get_id();
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
}

// Ranks share threads and cores: none has another's, and each has one thread at least.
TEST(ComputePool, PartsOfTheCores) {
  const CpuTopology topology = read_cpu_topology();
  const int cores = static_cast<int>(topology.cpus.size());
  for (const int parts : {1, 2, 3, 5}) {
    for (const int threads : {1, 2, 4, 7}) {
      std::set<int> cpus;
      int sum = 0, pinned = 0;
      for (int part = 0; part < parts; ++part) {
        const ComputePool pool(threads, true, part, parts);
        sum += pool.threads();
        pinned += static_cast<int>(pool.cpus().size());
        cpus.insert(pool.cpus().begin(), pool.cpus().end());
      }
      EXPECT_EQ(sum, std::max(threads, parts));
      const bool pins = sum <= cores && sum >= topology.physical_cores && !topology.quota;
      EXPECT_EQ(pinned, pins ? sum : 0);
      EXPECT_EQ(static_cast<int>(cpus.size()), pinned) << threads << " threads, " << parts << " parts";
    }
  }
}

TEST(ComputePool, MoreParts) {
  ComputePool pool(2);
  std::atomic<int64_t> sum{0};
  pool.parallel(200000, [&](int p) { sum.fetch_add(p, std::memory_order_relaxed); });
  EXPECT_EQ(sum.load(), int64_t{200000} * 199999 / 2);
}

// Writes of one loop are seen by the next, whichever thread reads them; also after the threads have gone to sleep.
TEST(ComputePool, LoopsAreOrdered) {
  ComputePool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    const int shift = round % 64;
    pool.parallel(64, [&](int p) { values[static_cast<size_t>((p + shift) % 64)] += 1; });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (round % 3 == 0) pool.parallel_dynamic(2, [&](int p) { values[static_cast<size_t>(p)] += 0; });
  }
  for (const int64_t v : values) EXPECT_EQ(v, 2000);
}

TEST(ComputePool, ManyPoolsComeAndGo) {
  std::atomic<int> sum{0};
  for (int i = 0; i < 50; ++i) {
    ComputePool pool(3);
    if (i % 2 == 0) pool.parallel(3, [&](int) { sum.fetch_add(1); });
  }
  EXPECT_EQ(sum.load(), 75);
}

TEST(ComputePool, LeavesTheCallersAffinityAlone) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  {
    ComputePool pool(0);
    EXPECT_GE(pool.threads(), 1);
    pool.parallel(8, [](int) {});
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  std::thread pinned([] {
    ComputePool pool(0);
    // On a thread of the pool it does nothing: that one has a core of its own.
    std::atomic<int> inside{0};
    pool.parallel(pool.threads(), [&](int) {
      inside.fetch_add(1);
      while (inside.load() < pool.threads()) std::this_thread::yield();
      pool.pin_caller();
    });
    std::vector<int> where(static_cast<size_t>(pool.threads()), -1);
    inside = 0;
    pool.parallel(pool.threads(), [&](int part) {
      inside.fetch_add(1);
      while (inside.load() < pool.threads()) std::this_thread::yield();
      cpu_set_t now;
      if (sched_getaffinity(0, sizeof now, &now) != 0 || CPU_COUNT(&now) != 1) return;
      for (int c = 0; c < CPU_SETSIZE; ++c) {
        if (CPU_ISSET(static_cast<size_t>(c), &now)) where[static_cast<size_t>(part)] = c;
      }
    });
    if (pool.cpus().empty()) return;  // a quota holds here
    EXPECT_EQ(std::set<int>(where.begin(), where.end()), std::set<int>(pool.cpus().begin(), pool.cpus().end()));
  });
  pinned.join();
  // One thread of several cores is not pinned: another process may have the same idea.
  if (read_cpu_topology().physical_cores > 1) {
    EXPECT_TRUE(ComputePool(1).cpus().empty());
  }
}

}  // namespace
}  // namespace tern::device
