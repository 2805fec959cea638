// The V1 scheduler (fastdeploy.md 6.3): one loop over the running sequences, decode charged first, prefill in
// chunks, blocks as they are needed, preemption of the last admitted.
#include <algorithm>

#include "sched/core.h"

namespace tern::sched {
namespace {

class V1Scheduler final : public SchedulerCore {
 public:
  V1Scheduler(const SchedulerConfig& config, cache::BlockPool& pool, cache::PrefixIndex& index)
      : SchedulerCore(config, pool, index), reserve_(config.reserve_output_blocks) {}

 private:
  void schedule(Plan& plan) override {
    int budget = config().max_num_batched_tokens;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (i + kAhead < running_.size()) prefetch(*running_[i + kAhead], 1);
      budget -= running_[i]->decodes() ? 1 : 0;
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& s = *running_[i];
      if (!s.prefilling()) {
        if (s.decodes() && ensure_blocks(plan, s, s.length(), decode_blocks(s))) emit(plan, s, 1);
      } else if (const int count = chunk_size(s, s.computed, budget); count > 0) {
        if (!ensure_blocks(plan, s, s.computed + count, 0)) continue;
        emit(plan, s, count);
        budget -= count;
      }
    }
    if (plan.preempted.empty()) {
      while (budget > 0 && admit_next(plan, budget)) {
      }
    } else {
      reserve_ = config().reserve_output_blocks;
    }
    if (!plan.rows.empty()) reserve_ = std::max(config().reserve_min, reserve_ - config().reserve_decay);
  }

  // Blocks a decoding sequence should hold: when few slots are left, some more than it has.
  int decode_blocks(const Sequence& s) const {
    const int left = held(s) * config().block_size - s.length();
    if (left > config().prealloc_dec_block_slot_num_threshold) return 0;
    return std::min(held(s) + config().enc_dec_block_num, final_blocks(s));
  }

  // Blocks for `tokens` tokens, which the row cannot do without, up to `wished`, which only free blocks give. Preempts
  // for the former; false when the sequence gets no row: it was the victim itself, or waits for blocks that are about
  // to return.
  bool ensure_blocks(Plan& plan, Sequence& s, int tokens, int wished) {
    const int need = blocks_for(tokens) - held(s);
    while (need > 0 && !make_free(need)) {
      Sequence& victim = *running_.back();
      if (&victim == &s && blocks_will_return()) return false;
      preempt(plan, victim);
      if (&victim == &s) return false;
    }
    int count = std::max(need, wished - held(s));
    while (count > need && !make_free(count)) --count;
    if (count > 0) grow(s, count);
    return true;
  }

  // Admits the head of the queue; false when it has to wait.
  bool admit_next(Plan& plan, int& budget) {
    Sequence* s = candidate();
    if (!s) return false;
    const int reserve = static_cast<int>(running_.size()) * static_cast<int>(reserve_);
    if (usable_blocks() < reserve + 1) return false;  // before the hashes are looked up: the usual case of a full cache
    const int cached = match_prefix(*s);
    s->prefill_end = s->known;
    const int count = chunk_size(*s, cached, budget);
    if (!fits_budget(*s, cached, budget, count) || !fits_blocks(*s, cached + count, reserve)) {
      drop_match();
      return false;
    }
    const int need = blocks_for(cached + count) - matched_blocks();
    make_free(need);
    admit(plan, *s, need);
    emit(plan, *s, count);
    budget -= count;
    return true;
  }

  // Without chunks the whole prompt goes at once. What a preempted sequence has grown to may exceed any step, and is
  // cut.
  bool fits_budget(const Sequence& s, int cached, int budget, int count) const {
    if (count <= 0 || config().chunked_prefill || s.known - cached > config().max_num_batched_tokens) return count > 0;
    return s.known - cached <= budget;
  }

  // The whole prompt must find room beside a reserve for those that decode; alone, its first chunk.
  bool fits_blocks(const Sequence& s, int tokens, int reserve) const {
    const int all = running_.empty() ? tokens : s.known;
    return usable_blocks() >= blocks_for(all) - matched_blocks() + reserve;
  }

  double reserve_;  // blocks per running sequence; decays with every step, back to the start with a preemption
};

}  // namespace

std::unique_ptr<Scheduler> make_v1_scheduler(const SchedulerConfig& config, cache::BlockPool& pool,
                                             cache::PrefixIndex& index) {
  return std::make_unique<V1Scheduler>(config, pool, index);
}

}  // namespace tern::sched
