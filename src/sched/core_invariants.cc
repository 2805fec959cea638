#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sched/core.h"

namespace tern::sched {

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
