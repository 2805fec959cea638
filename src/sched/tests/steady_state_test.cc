// A steady decode step, planned and collected, allocates nothing.
#include <gtest/gtest.h>

#include <atomic>

#include "sched/scheduler.h"

namespace {
std::atomic<long> allocations{0};
void count_new() { ++allocations; }
}  // namespace
#include "base/tests/counted_new.h"

namespace tern::sched {
namespace {

class SteadyState : public ::testing::TestWithParam<std::tuple<bool, int>> {};

TEST_P(SteadyState, AllocatesNothing) {
  const auto [v1, depth] = GetParam();
  SchedulerConfig config;
  config.v1 = v1;
  config.block_size = 16;
  config.max_num_seqs = 64;
  config.max_num_batched_tokens = 2048;
  config.max_model_len = 1024;
  config.max_prefill_num = config.max_num_partial_prefills = config.max_long_partial_prefills = 64;
  config.reserve_output_blocks = 0;
  config.kv_cache_ratio = 0.1;
  cache::BlockPool pool(64 * 64 + 1);
  cache::PrefixIndex index(pool, HashKey{3, 4});
  const auto scheduler = make_scheduler(config, pool, index);
  for (SeqId id = 1; id <= 64; ++id) {
    NewSequence s;
    s.id = id;
    s.prompt.assign(20, static_cast<int32_t>(id));
    s.max_new_tokens = 900;
    ASSERT_TRUE(scheduler->add(std::move(s)).ok());
  }
  Plan plans[2];
  std::vector<Scheduler::RowResult> results[2];
  for (auto& r : results) r.reserve(64);
  const int32_t token = 7;
  long before = 0, rows = 0;
  size_t open = 0;
  for (size_t step = 0; step < 500; ++step) {
    if (step == 20) before = allocations;
    Plan& plan = plans[step % 2];
    scheduler->plan(plan);
    results[step % 2].clear();
    for (const PlanRow& row : plan.rows) {
      if (row.samples) results[step % 2].push_back({row.seq, std::span(&token, 1), false});
      rows += step >= 20 ? 1 : 0;
    }
    if (++open == static_cast<size_t>(depth)) {
      scheduler->collect(results[(step + 1 - open) % 2]);
      --open;
    }
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_EQ(rows, 64 * 480);
  scheduler->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(All, SteadyState, ::testing::Combine(::testing::Bool(), ::testing::Values(1, 2)));

TEST(Scheduler, OnlyTwoPlansMayBeOpen) {
  cache::BlockPool pool(9);
  cache::PrefixIndex index(pool, HashKey{3, 4});
  SchedulerConfig config;
  config.block_size = 4;
  const auto scheduler = make_scheduler(config, pool, index);
  NewSequence s;
  s.id = 1;
  s.prompt = {1, 2, 3};
  s.max_new_tokens = 5;
  ASSERT_TRUE(scheduler->add(s).ok());
  Plan plan;
  scheduler->plan(plan);
  EXPECT_EQ(plan.step, 0u);
  scheduler->plan(plan);
  EXPECT_EQ(plan.step, 1u);
  EXPECT_DEATH(scheduler->plan(plan), "two plans are open");
  EXPECT_DEATH(scheduler->collect({}), "results must follow");
}

TEST(Scheduler, EmptyPlansTakeNoStepAndNeedNoCollect) {
  cache::BlockPool pool(9);
  cache::PrefixIndex index(pool, HashKey{3, 4});
  const auto scheduler = make_scheduler(SchedulerConfig{}, pool, index);
  Plan plan;
  for (int i = 0; i < 3; ++i) scheduler->plan(plan);
  EXPECT_TRUE(plan.empty());
  EXPECT_EQ(plan.step, 0u);
  EXPECT_FALSE(scheduler->has_work());
  scheduler->collect({});
  scheduler->abort(77);
  EXPECT_TRUE(scheduler->blocks(77).empty());
}

TEST(Scheduler, EndsAtTheLimitEvenIfTheEngineSaysNothing) {
  for (bool v1 : {true, false}) {
    cache::BlockPool pool(9);
    cache::PrefixIndex index(pool, HashKey{3, 4});
    SchedulerConfig config;
    config.v1 = v1;
    const auto scheduler = make_scheduler(config, pool, index);
    NewSequence s;
    s.id = 1;
    s.prompt = {1, 2, 3};
    s.max_new_tokens = 1;
    ASSERT_TRUE(scheduler->add(s).ok());
    Plan plan;
    scheduler->plan(plan);
    const int32_t token = 5;
    const Scheduler::RowResult result{1, std::span(&token, 1), false};
    scheduler->collect(std::span(&result, 1));
    EXPECT_FALSE(scheduler->has_work());
    EXPECT_EQ(pool.free_count(), 8);
    ASSERT_TRUE(scheduler->add(s).ok());  // the id is free again
  }
}

}  // namespace
}  // namespace tern::sched
