// Many sequences of one owner do not keep out those of another.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "sched/scheduler.h"

namespace tern::sched {
namespace {

class Fairness : public ::testing::TestWithParam<bool> {
 protected:
  Fairness() : pool_(512), index_(pool_, HashKey{1, 2}) {
    SchedulerConfig config;
    config.v1 = GetParam();
    config.block_size = 4;
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 64;
    config.max_model_len = 64;
    config.max_prefill_num = config.max_num_partial_prefills = config.max_long_partial_prefills = 4;
    scheduler_ = make_scheduler(config, pool_, index_);
  }

  void add(SeqId id, uint64_t owner, int tokens = 3) {
    NewSequence s;
    s.id = id;
    s.owner = owner;
    s.prompt = {1, 2, static_cast<int32_t>(id)};
    s.max_new_tokens = tokens;
    ASSERT_TRUE(scheduler_->add(std::move(s)).ok());
  }

  // Runs to the end; ids in the order of admission.
  std::vector<SeqId> admissions() {
    std::vector<SeqId> order;
    Plan plan;
    const int32_t token = 5;
    for (int step = 0; step < 10'000 && scheduler_->has_work(); ++step) {
      scheduler_->plan(plan);
      scheduler_->check_invariants();
      for (const Admission& a : plan.admitted) order.push_back(a.seq);
      std::vector<Scheduler::RowResult> results;
      for (const PlanRow& row : plan.rows) {
        if (row.samples) results.push_back({row.seq, {&token, 1}, false});
      }
      if (!plan.empty()) scheduler_->collect(results);
    }
    EXPECT_FALSE(scheduler_->has_work());
    return order;
  }

  cache::BlockPool pool_;
  cache::PrefixIndex index_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_P(Fairness, OneOwnerIsServedInOrder) {
  std::vector<SeqId> wanted;
  for (SeqId id = 1; id <= 20; ++id) add(id, 7), wanted.push_back(id);
  EXPECT_EQ(admissions(), wanted);
}

TEST_P(Fairness, ManyOfOneDoNotKeepOutAnother) {
  for (SeqId id = 1; id <= 200; ++id) add(id, 1);
  add(1000, 2);
  add(1001, 3);
  add(1002, 2);
  const auto order = admissions();
  ASSERT_EQ(order.size(), 203u);
  std::map<SeqId, size_t> place;
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  EXPECT_LT(place[1000], 4u);
  EXPECT_LT(place[1001], 4u);
  EXPECT_LT(place[1002], 6u);
  for (SeqId id = 2; id <= 200; ++id) EXPECT_LT(place[id - 1], place[id]);
}

TEST_P(Fairness, SlotsAreShared) {
  for (SeqId id = 1; id <= 40; ++id) add(id, id <= 30 ? 1 : 2);
  const auto order = admissions();
  int late = 0;
  for (size_t i = 0; i < 20; ++i) late += order[i] > 30 ? 1 : 0;
  EXPECT_EQ(late, 10) << "half of the first twenty, and so all of the owner with less";
}

TEST_P(Fairness, AbortedOnesLeaveNoTrace) {
  for (SeqId id = 1; id <= 10; ++id) add(id, id % 3);
  for (SeqId id = 1; id <= 10; id += 2) scheduler_->abort(id);
  scheduler_->check_invariants();
  EXPECT_EQ(admissions().size(), 5u);
}

INSTANTIATE_TEST_SUITE_P(Both, Fairness, ::testing::Values(true, false));

}  // namespace
}  // namespace tern::sched
