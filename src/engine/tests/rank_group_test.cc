// Several ranks behind one engine: what happens when one of them fails, and what is refused at the start.
#include "engine/ranks/rank_group.h"

#include <dirent.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "engine/tests/engine_harness.h"

namespace tern::engine {
namespace {

std::multiset<std::string> thread_names() {
  std::multiset<std::string> names;
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(tasks)) {
    std::ifstream in(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    if (std::getline(in, name)) names.insert(name);
  }
  ::closedir(tasks);
  return names;
}

TEST(RankGroup, AThreadForEachRank) {
  Harness h(Harness::small(), FakeOptions{}, 4);
  ASSERT_TRUE(h->submit(Harness::request(1, {5, 6, 7}, 12)).ok());
  h.read(1);
  EXPECT_EQ(h.answers[1].ids, h.fake().continuation({5, 6, 7}, 12, 0));
  const auto names = thread_names();
  for (const char* name : {"rank-0", "rank-1", "rank-2", "rank-3"}) EXPECT_EQ(names.count(name), 1u) << name;
  EXPECT_EQ(names.count("rank-4"), 0u);
}

TEST(RankGroup, AFailingRankEndsTheEngine) {
  for (const int rank : {0, 1, 3}) {
    EngineConfig c = Harness::small();
    c.fault = device::Fault::kTrap, c.fault_step = 5, c.fault_rank = rank;
    Harness h(c, FakeOptions{}, 4);
    Request r = Harness::request(1, {1, 2, 3}, 60);
    r.ignore_eos = true;
    ASSERT_TRUE(h->submit(std::move(r)).ok());
    h.read(1);
    EXPECT_EQ(h.answers[1].last.finish, FinishReason::kError);
    // Why, not that others waited in vain.
    EXPECT_NE(h.answers[1].last.error.message.find("a fault was asked for"), std::string::npos)
        << h.answers[1].last.error.message;
    EXPECT_FALSE(h->healthy());
    EXPECT_FALSE(h->submit(Harness::request(2, {1}, 1)).ok());
  }
}

TEST(RankGroup, AModelThatFailsOnAllRanks) {
  Harness h(Harness::small(), FakeOptions{.fail_token = 13}, 2);
  ASSERT_TRUE(h->submit(Harness::request(1, {1, 13, 3}, 4)).ok());
  h.read(1);
  EXPECT_EQ(h.answers[1].last.finish, FinishReason::kError);
}

TEST(RankGroup, AFaultOfNoRank) {
  const FakeModel model({});
  const auto device = device::make_cpu_device({1, false}).value();
  const auto group = device::make_cpu_communicators(1, false);
  const RankModel only{&model, device.get()};
  EngineConfig c = Harness::small();
  c.fault_rank = 1;
  const auto engine = Engine::start(c, {&only, 1}, nullptr, nullptr);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message, "TERN_FAULT: there is no rank 1 of 1");
}

}  // namespace
}  // namespace tern::engine
