// What happens when a step's tokens are back, how sequences end, and what holds between two calls.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sched/core.h"

namespace tern::sched {

void SchedulerCore::collect(std::span<const RowResult> results) {
  if (open_ == 0 && results.empty()) return;
  TERN_CHECK_MSG(open_ > 0, "nothing to collect");
  OpenPlan& plan = oldest();
  size_t next = 0;
  bool ended = false;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const OpenRow& row = plan.rows[i];
    if (i + kAhead < plan.rows.size()) prefetch(*plan.rows[i + kAhead].seq, 2);
    if (i + kAhead / 2 < plan.rows.size()) prefetch_end(plan.rows[i + kAhead / 2].seq->tokens);
    const RowResult* result = nullptr;
    if (row.samples) {
      TERN_CHECK_MSG(
          next < results.size() && results[next].seq == row.seq->id,
          "results must follow the sampling rows of the plan; row of sequence " + std::to_string(row.seq->id));
      result = &results[next++];
    }
    settle(row, result);
    ended |= row.seq->state == SeqState::kEnding;
  }
  TERN_CHECK_MSG(next == results.size(), "more results than sampling rows");
  // An empty list, so that the rows are not settled twice.
  first_open_ = (first_open_ + 1) % open_plans_.size();
  --open_;
  if (!ended) return;
  std::erase_if(running_, [](const Sequence* s) { return s->state == SeqState::kEnding; });
  for (const OpenRow& row : plan.rows) {
    if (row.seq->state == SeqState::kEnding) erase_if_done(*row.seq);
  }
}

void SchedulerCore::settle(const OpenRow& row, const RowResult* result) {
  Sequence& s = *row.seq;
  --s.open_rows;
  if (row.ignored || s.state == SeqState::kEnding) return;
  int valid = row.first + row.count;
  bool finished = false, failed = false;
  if (result) {
    --s.in_flight;
    finished = result->finished;
    const auto count = static_cast<int>(result->tokens.size());
    failed = finished && count == 0;
    // The row's last token is computed again: its block must not be shared by then.
    if (count == 0) --valid;
    if (count != 1 && !finished) retract(s, count == 0 ? s.known - 1 : s.known);
    TERN_CHECK_MSG(s.known + count <= s.limit, "sequence " + std::to_string(s.id) + " got tokens beyond its limit");
    for (const int32_t token : result->tokens) s.tokens.push_back(token);
    s.known += count;
    if (count > 1 && s.state == SeqState::kRunning) s.prefill_end = s.known;
    finished |= s.known == s.limit;
  }
  if (s.state == SeqState::kRunning && !failed) {
    s.confirmed = valid;
    // Prompts are shared from now on; output waits for the end, when it is known to be worth keeping.
    cache_blocks(s, std::min(s.confirmed, s.prompt));
  }
  if (finished) end(s, !failed);
}

// The newest known token is not where an open plan assumed: that plan's row is void, later plans start at `computed`.
void SchedulerCore::retract(Sequence& s, int computed) {
  if (s.open_rows > 0) {
    for (OpenRow& row : newest().rows) {
      if (row.seq != &s || row.ignored) continue;
      row.ignored = true;
      if (row.samples) --s.in_flight;
    }
  }
  if (s.state != SeqState::kRunning) return;
  s.computed = std::min(s.computed, computed);
}

// Offers the full blocks among the first `tokens` tokens, all of them confirmed, to the prefix index. Content that
// another sequence has brought there meanwhile is shared at once: the sequence takes that block for its own, which
// becomes free (open steps still read it, later ones run after them). So no block is held twice, and whoever holds a
// child holds its parents.
void SchedulerCore::cache_blocks(Sequence& s, int tokens) {
  if (!s.use_cache) return;
  const int full = tokens / config_.block_size;
  if (full <= s.cached_blocks) return;
  extend_hashes(s, index_.key(), config_.block_size, full);
  bool restarted = false;
  for (int i = s.cached_blocks; i < full; ++i) {
    const auto at = static_cast<size_t>(i);
    const Hash128 parent = i == 0 ? Hash128{} : s.hashes[at - 1];
    const int32_t cached = index_.insert(parent, s.hashes[at], s.blocks[at]);
    if (cached < 0) {
      TERN_CHECK(!restarted);  // only when the index was cleared
      restarted = true;
      i = -1;
    } else if (cached != s.blocks[at]) {
      pool_.retain(cached);
      pool_.release(s.blocks[at]);
      s.blocks[at] = cached;
      s.table = ++next_table_;
    }
  }
  s.cached_blocks = full;
}

void SchedulerCore::end(Sequence& s, bool keep_output) {
  if (s.state == SeqState::kWaiting) {
    waiting_.remove(&s);
    if (s.counted) --preempted_waiting_;
  } else if (s.slot >= 0) {
    ++ending_holders_;
  }
  s.state = SeqState::kEnding;
  s.keep_output = keep_output;
}

void SchedulerCore::leave_running(Sequence& s) { running_.erase(std::find(running_.begin(), running_.end(), &s)); }

void SchedulerCore::give_back(Sequence& s) {
  on_give_back(s);
  // Children before parents, so that the prefix index ages them in the order it evicts them.
  for (; !s.blocks.empty(); s.blocks.pop_back()) pool_.release(s.blocks.back());
  slots_.release(s.slot);
  waiting_.give_slot(&s);
  s.slot = -1;
}

void SchedulerCore::erase_if_done(Sequence& s) {
  if (s.open_rows > 0) return;
  if (s.slot >= 0) {
    if (s.keep_output && config_.output_caching && config_.v1) cache_blocks(s, s.confirmed);
    give_back(s);
    --ending_holders_;
  }
  waiting_.leave(&s);
  sequences_.erase(s.id);
}

std::span<const int32_t> SchedulerCore::blocks(SeqId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? std::span<const int32_t>{} : found->second->blocks;
}

std::span<const int32_t> SchedulerCore::tokens(SeqId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? std::span<const int32_t>{} : found->second->tokens;
}

Scheduler::RowView SchedulerCore::row(size_t row) const {
  const Sequence& s = *newest().rows[row].seq;
  return {s.tokens, s.blocks};
}

SchedulerStats SchedulerCore::stats() const {
  SchedulerStats stats = counters_;
  stats.running = static_cast<int>(running_.size());
  stats.preempted_waiting = preempted_waiting_;
  stats.waiting = waiting_.size() - preempted_waiting_;
  stats.free_blocks = pool_.free_count();
  stats.usable_blocks = usable_blocks();
  stats.total_blocks = total_blocks_;
  stats.cached_blocks = index_.size();
  stats.prefill_blocks = prefill_blocks();
  return stats;
}

void SchedulerCore::check_invariants() const {
  std::vector<int> holders(static_cast<size_t>(pool_.size()), 0);
  std::vector<bool> slot_taken(static_cast<size_t>(config_.max_num_seqs), false);
  std::unordered_map<const Owner*, std::pair<int, int>> owners;
  int waiting = 0, preempted = 0, running = 0, ending_holders = 0, slots = 0;
  for (const auto& [id, owner] : sequences_) {
    const Sequence& s = *owner;
    const std::string who = "sequence " + std::to_string(id);
    TERN_CHECK_MSG(s.known == static_cast<int>(s.tokens.size()) && s.known <= s.limit, who);
    ++owners[s.owner].first;
    owners[s.owner].second += s.slot >= 0 ? 1 : 0;
    if (s.state == SeqState::kWaiting) ++waiting, preempted += s.counted ? 1 : 0;
    if (s.state == SeqState::kRunning) ++running;
    if (s.slot < 0) {
      TERN_CHECK_MSG(s.blocks.empty() && s.state != SeqState::kRunning, who);
      continue;
    }
    TERN_CHECK_MSG(s.state != SeqState::kWaiting && s.slot < config_.max_num_seqs, who);
    TERN_CHECK_MSG(!slot_taken[static_cast<size_t>(s.slot)], who);
    slot_taken[static_cast<size_t>(s.slot)] = true;
    ++slots;
    if (s.state == SeqState::kEnding) {
      ++ending_holders;
      TERN_CHECK_MSG(s.open_rows > 0, who);
    }
    TERN_CHECK_MSG(s.confirmed <= s.computed && s.computed <= s.length() && s.length() <= s.limit, who);
    TERN_CHECK_MSG(held(s) >= blocks_for(s.computed) && held(s) <= final_blocks(s), who);
    for (size_t i = 0; i < s.blocks.size(); ++i) {
      const int32_t block = s.blocks[i];
      TERN_CHECK_MSG(block > 0 && block < pool_.size(), who);
      ++holders[static_cast<size_t>(block)];
      // Whatever a later row writes must be this sequence's alone.
      const bool writable = (static_cast<int>(i) + 1) * config_.block_size > s.computed;
      TERN_CHECK_MSG(!writable || pool_.refs(block) == 1, who + " may write shared block " + std::to_string(block));
    }
  }
  for (const auto& [owner, has] : owners) TERN_CHECK(has == std::pair(owner->sequences, owner->slots));
  TERN_CHECK(waiting == waiting_.size() && preempted == preempted_waiting_);
  TERN_CHECK(running == static_cast<int>(running_.size()) && ending_holders == ending_holders_);
  TERN_CHECK(slots + slots_.free_count() == config_.max_num_seqs);
  int in_use = 0;
  for (int block = 1; block < pool_.size(); ++block) {
    const int expected = holders[static_cast<size_t>(block)] + (index_.holds(block) ? 1 : 0);
    TERN_CHECK_MSG(pool_.refs(block) == expected, "block " + std::to_string(block) + " is leaked or lost");
    if (expected > 0) ++in_use;
  }
  TERN_CHECK(in_use + pool_.free_count() == total_blocks_);
}

}  // namespace tern::sched
