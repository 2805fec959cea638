// The legacy scheduler (fastdeploy.md 6.2, ENABLE_V1_KVCACHE_SCHEDULER=0): a prompt's blocks and a few decode
// blocks are taken at admission out of the prefill share, decode grows block by block out of the rest, and when that is
// gone the sequence that took most of it is dropped and prefilled again.
#include <algorithm>

#include "base/check.h"
#include "sched/core.h"

namespace tern::sched {
namespace {

class LegacyScheduler final : public SchedulerCore {
 public:
  LegacyScheduler(const SchedulerConfig& config, cache::BlockPool& pool, cache::PrefixIndex& index)
      : SchedulerCore(config, pool, index),
        prefill_share_(std::clamp(static_cast<int>(total_blocks() * config.kv_cache_ratio), 0, total_blocks())),
        long_prompt_(config.long_prefill_token_threshold > 0 ? config.long_prefill_token_threshold
                                                             : static_cast<int>(config.max_model_len * 0.04)) {
    TERN_CHECK_MSG(
        config.max_prefill_num > 0 && config.max_num_partial_prefills > 0 && config.max_long_partial_prefills > 0,
        "at least one prefill at a time");
  }

  void check_invariants() const override {
    SchedulerCore::check_invariants();
    int used = 0;
    for (const Sequence* s : running_) used += s->decode_share;
    TERN_CHECK(used <= decode_used_ && decode_used_ <= decode_share());
    if (!blocks_will_return()) TERN_CHECK(used == decode_used_);
  }

 private:
  int prefill_blocks() const override { return prefill_share_; }
  int decode_share() const { return total_blocks() - prefill_share_; }
  int decode_free() const { return decode_share() - decode_used_; }

  void on_give_back(Sequence& s) override {
    decode_used_ -= s.decode_share;
    s.decode_share = 0;
  }

  void schedule(Plan& plan) override {
    grow_decoding(plan);
    int budget = config().max_num_batched_tokens;
    for (const Sequence* s : running_) budget -= can_decode(*s) ? 1 : 0;
    Prefills prefills;
    for (Sequence* s : running_) {
      if (can_decode(*s)) emit(plan, *s, 1);
      if (!s->prefilling() || wants_block(*s)) continue;
      prefills.add(is_long(*s));
      const int count = chunk_size(*s, s->computed, budget);
      if (count == 0) continue;
      emit(plan, *s, count);
      budget -= count;
    }
    if (!plan.preempted.empty()) return;
    while (budget > 0 && admit_next(plan, budget, prefills)) {
    }
  }

  struct Prefills {
    int all = 0, with_long_prompt = 0;
    void add(bool is_long) { ++all, with_long_prompt += is_long ? 1 : 0; }
  };

  // Usually a decoding sequence at the end of its last block; a prefilling one only if it was given several tokens at
  // once.
  bool wants_block(const Sequence& s) const {
    return held(s) < blocks_for(s.length()) && (s.decodes() || s.prefilling());
  }
  // A sequence that found no block has no row until some return.
  bool can_decode(const Sequence& s) const { return s.decodes() && !wants_block(s); }
  bool is_long(const Sequence& s) const { return s.prompt > long_prompt_; }

  // All growth before the first row: whoever is dropped has no row yet.
  void grow_decoding(Plan& plan) {
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& s = *running_[i];
      const size_t dropped = plan.preempted.size();
      size_t at = i;
      while (s.state == SeqState::kRunning && wants_block(s) && grow_one(plan, s, at)) {
      }
      i = dropped == plan.preempted.size() ? i : at;
    }
  }

  // One more block for a sequence, dropping others, or the sequence itself, on shortage; false when there was none.
  // `at` becomes its place among the running ones, one less (size_t wraps) when it is gone.
  bool grow_one(Plan& plan, Sequence& s, size_t& at) {
    for (;;) {
      if (decode_free() > 0 && make_free(1)) {
        grow(s, 1);
        ++s.decode_share, ++decode_used_;
        return true;
      }
      Sequence& victim = longest_holder();
      // Alone there is no other to share with; without any decode share, decode grows out of the other one.
      if ((running_.size() == 1 || decode_share() == 0) && make_free(1)) {
        grow(s, 1);
        return true;
      }
      if (&victim == &s && blocks_will_return()) return false;
      at = place(s);
      preempt(plan, victim);
      if (&victim == &s) {
        --at;
        return false;
      }
      at = place(s);
    }
  }

  size_t place(const Sequence& s) const {
    return static_cast<size_t>(std::find(running_.begin(), running_.end(), &s) - running_.begin());
  }

  // Holds most of the decode share; of equals the one with most blocks, then the last admitted.
  Sequence& longest_holder() const {
    Sequence* longest = running_.front();
    for (Sequence* s : running_) {
      if (std::pair(s->decode_share, held(*s)) >= std::pair(longest->decode_share, held(*longest))) longest = s;
    }
    return *longest;
  }

  bool admit_next(Plan& plan, int& budget, Prefills& prefills) {
    Sequence* s = candidate();
    if (!s || prefills.all >= config().max_prefill_num) return false;
    if (config().chunked_prefill) {
      if (prefills.all >= config().max_num_partial_prefills) return false;
      if (is_long(*s) && prefills.with_long_prompt >= config().max_long_partial_prefills) return false;
    }
    const int kept_back = running_.empty() ? 0 : decode_free();
    if (usable_blocks() <= kept_back) return false;  // before the hashes are looked up
    const int cached = match_prefix(*s);
    s->prefill_end = s->known;
    const int count = chunk_size(*s, cached, budget);
    const bool whole = !config().chunked_prefill && s->known - cached <= config().max_num_batched_tokens;
    const int need = std::min(blocks_for(s->known) + config().enc_dec_block_num, final_blocks(*s)) - matched_blocks();
    if (count == 0 || (whole && s->known - cached > budget) || usable_blocks() - kept_back < need) {
      drop_match();
      return false;
    }
    make_free(need);
    admit(plan, *s, need);
    emit(plan, *s, count);
    budget -= count;
    prefills.add(is_long(*s));
    return true;
  }

  int prefill_share_;
  int long_prompt_;
  int decode_used_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_legacy_scheduler(const SchedulerConfig& config, cache::BlockPool& pool,
                                                 cache::PrefixIndex& index) {
  return std::make_unique<LegacyScheduler>(config, pool, index);
}

}  // namespace tern::sched
