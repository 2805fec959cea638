// What both schedulers share: queues, blocks, slots, open plans. A scheduler adds the rules of one step.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "sched/scheduler.h"
#include "sched/sequence.h"
#include "sched/slot_set.h"

namespace tern::sched {

class SchedulerCore : public Scheduler {
 public:
  SchedulerCore(const SchedulerConfig& config, cache::BlockPool& pool, cache::PrefixIndex& index);

  Status add(NewSequence sequence) final;
  void abort(SeqId id) final;
  void plan(Plan& plan) final;
  void collect(std::span<const RowResult> results) final;
  std::span<const int32_t> blocks(SeqId id) const final;
  std::span<const int32_t> tokens(SeqId id) const final;
  RowView row(size_t row) const final;
  bool has_work() const final { return !sequences_.empty() || open_ > 0; }
  SchedulerStats stats() const final;
  void check_invariants() const override;

 protected:
  // The rules: fills `plan` through emit, admit and preempt.
  virtual void schedule(Plan& plan) = 0;
  // Blocks that prompts may take (legacy: a share).
  virtual int prefill_blocks() const { return total_blocks_; }
  // The sequence is about to give its blocks back.
  virtual void on_give_back(Sequence&) {}

  const SchedulerConfig& config() const { return config_; }
  int total_blocks() const { return total_blocks_; }
  int blocks_for(int tokens) const { return (tokens + config_.block_size - 1) / config_.block_size; }
  // Blocks the sequence can ever use: the last token's own keys and values are never needed.
  int final_blocks(const Sequence& s) const { return blocks_for(s.limit - 1); }
  int held(const Sequence& s) const { return static_cast<int>(s.blocks.size()); }
  int usable_blocks() const { return pool_.free_count() + index_.evictable(); }
  // Sequences that have ended but still hold blocks because an open step names them.
  bool blocks_will_return() const { return ending_holders_ > 0; }

  // Makes `count` blocks free, evicting unused cached ones; false when there are not that many (nothing is evicted
  // then).
  bool make_free(int count);
  // Gives the sequence `count` blocks; they must be free.
  void grow(Sequence& s, int count);
  // Chunk of a prefilling sequence within `budget` tokens (fastdeploy.md 6.3, 6.4): whole ranges, so it may exceed the
  // budget.
  int chunk_size(const Sequence& s, int computed, int budget) const;
  // Prompt positions [computed, ...) of this sequence still yield logit rows.
  bool scores(const Sequence& s) const { return s.score_prompt && s.known == s.prompt; }
  void emit(Plan& plan, Sequence& s, int count);
  // Takes blocks and slot away and puts the sequence, which must be running and have no row in this plan, in front of
  // the queue. Several in one step: last admitted first.
  void preempt(Plan& plan, Sequence& s);

  // The head of the queue, if it may be admitted at all: a slot is free and nothing of it is in flight.
  Sequence* candidate() const;
  // Matches the prefix cache for the candidate: `matched_` holds the blocks, retained. Returns the tokens they hold.
  int match_prefix(Sequence& s);
  void drop_match();
  int matched_blocks() const { return static_cast<int>(matched_.size()); }
  // Admits the candidate with the matched blocks and `count` new ones, which must be available.
  void admit(Plan& plan, Sequence& s, int count);

  std::vector<Sequence*> running_;  // in order of admission

 private:
  struct OpenRow {
    Sequence* seq = nullptr;
    int first = 0, count = 0;
    bool samples = false;
    bool ignored = false;  // what it assumed did not happen
  };
  struct OpenPlan {
    std::vector<OpenRow> rows;
  };

  OpenPlan& oldest() { return open_plans_[first_open_]; }
  OpenPlan& newest() { return open_plans_[(first_open_ + open_ - 1) % open_plans_.size()]; }
  const OpenPlan& newest() const { return open_plans_[(first_open_ + open_ - 1) % open_plans_.size()]; }
  int chunk_end(const Sequence& s, int computed, int budget) const;
  void settle(const OpenRow& row, const RowResult* result);
  void retract(Sequence& s, int computed);
  void cache_blocks(Sequence& s, int tokens);
  void end(Sequence& s, bool keep_output);
  void leave_running(Sequence& s);
  void give_back(Sequence& s);
  void erase_if_done(Sequence& s);

  SchedulerConfig config_;
  cache::BlockPool& pool_;
  cache::PrefixIndex& index_;
  int total_blocks_;
  std::unordered_map<SeqId, std::unique_ptr<Sequence>> sequences_;
  WaitingQueue waiting_;
  int preempted_waiting_ = 0;
  int ending_holders_ = 0;
  SlotSet slots_;
  std::array<OpenPlan, 2> open_plans_;
  size_t first_open_ = 0, open_ = 0;
  uint64_t next_step_ = 0, next_table_ = 0;
  int planned_scores_ = 0;  // logit rows of scored chunks in the plan being made
  int planned_ranges_ = 0;  // tokens of ranges its rows touch
  std::vector<int32_t> matched_;
  SchedulerStats counters_;
};

std::unique_ptr<Scheduler> make_v1_scheduler(const SchedulerConfig& config, cache::BlockPool& pool,
                                             cache::PrefixIndex& index);
std::unique_ptr<Scheduler> make_legacy_scheduler(const SchedulerConfig& config, cache::BlockPool& pool,
                                                 cache::PrefixIndex& index);

}  // namespace tern::sched
