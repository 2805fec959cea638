#include "sched/core.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"

namespace tern::sched {

SchedulerCore::SchedulerCore(const SchedulerConfig& config, cache::BlockPool& pool, cache::PrefixIndex& index)
    : config_(config), pool_(pool), index_(index), total_blocks_(pool.size() - 1), slots_(config.max_num_seqs) {
  TERN_CHECK(config.block_size > 0 && config.max_num_seqs > 0 && config.max_model_len > 1);
  TERN_CHECK_MSG(config.max_num_batched_tokens >= config.max_num_seqs,
                 "max_num_batched_tokens must hold one token of each of max_num_seqs sequences");
  TERN_CHECK(config.max_logit_rows == 0 || config.max_logit_rows > config.max_num_seqs);
  const auto seqs = static_cast<size_t>(config.max_num_seqs);
  running_.reserve(seqs);
  for (OpenPlan& open : open_plans_) open.rows.reserve(seqs);
  matched_.reserve(static_cast<size_t>(blocks_for(config.max_model_len)));
}

Status SchedulerCore::add(NewSequence sequence) {
  if (sequences_.contains(sequence.id)) {
    return make_error(ErrorCode::kInvalidArgument, "Duplicated request id " + std::to_string(sequence.id) + ".", "id");
  }
  TERN_RETURN_IF_ERROR(validate(sequence, config_, total_blocks_));
  auto owner = std::make_unique<Sequence>();
  Sequence& s = *owner;
  s.id = sequence.id;
  s.tokens = std::move(sequence.prompt);
  s.known = s.prompt = static_cast<int>(s.tokens.size());
  s.limit = s.prompt + sequence.max_new_tokens;
  s.score_prompt = sequence.prompt_logit_rows > 0;
  s.use_cache = config_.prefix_caching && sequence.use_prefix_cache;
  s.extra_keys = std::move(sequence.extra_keys);
  s.unsplittable = std::move(sequence.unsplittable);
  for (ExtraKey& key : s.extra_keys) {
    if (key.begin == 0 && key.end >= s.prompt) key.end = std::numeric_limits<int>::max();  // a salt: output too
  }
  if (s.use_cache) extend_hashes(s, index_.key(), config_.block_size, s.prompt / config_.block_size);
  const auto place = sequences_.emplace(s.id, std::move(owner)).first;
  try {
    waiting_.enter(&s, sequence.owner);
  } catch (...) {  // no memory
    sequences_.erase(place);
    throw;
  }
  waiting_.push_back(&s);
  return {};
}

void SchedulerCore::abort(SeqId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->state == SeqState::kEnding) return;
  Sequence& s = *found->second;
  const bool was_running = s.state == SeqState::kRunning;
  end(s, false);
  if (was_running) leave_running(s);
  erase_if_done(s);
}

void SchedulerCore::plan(Plan& plan) {
  TERN_CHECK_MSG(open_ < open_plans_.size(), "two plans are open: collect the older one first");
  plan.clear();
  plan.step = next_step_;
  ++open_;
  newest().rows.clear();
  planned_scores_ = planned_ranges_ = 0;
  schedule(plan);
  if (plan.rows.empty()) {
    --open_;
  } else {
    ++next_step_;
  }
}

bool SchedulerCore::make_free(int count) {
  const int missing = count - pool_.free_count();
  if (missing <= 0) return true;
  if (missing > index_.evictable()) return false;
  return index_.evict(missing) == missing;
}

void SchedulerCore::grow(Sequence& s, int count) {
  for (int i = 0; i < count; ++i) {
    const int32_t block = pool_.take();
    TERN_CHECK(block > 0);
    s.blocks.push_back(block);
  }
}

int SchedulerCore::chunk_size(const Sequence& s, int computed, int budget) const {
  const int end = chunk_end(s, computed, budget);
  if (config_.max_range_tokens == 0) return end - computed;
  return bound_ranges(s, computed, end, config_.max_range_tokens - planned_ranges_) - computed;
}

int SchedulerCore::chunk_end(const Sequence& s, int computed, int budget) const {
  const int count = std::min(s.prefill_end - computed, budget);
  if (count <= 0) return computed;
  if (!scores(s) || config_.max_logit_rows == 0) return round_chunk_end(s, computed + count);
  // One row is kept for each sequence, whatever else this step still plans. A range that does not fit waits for the
  // next.
  const int room = config_.max_logit_rows - config_.max_num_seqs - planned_scores_;
  const int scored = std::min(count, room);
  if (scored <= 0) return computed;
  const int end = round_chunk_end(s, computed + scored);
  return end - computed <= room ? end : begin_of_range(s, computed + scored);
}

void SchedulerCore::emit(Plan& plan, Sequence& s, int count) {
  PlanRow row;
  row.seq = s.id, row.table = s.table, row.slot = s.slot;
  row.first = s.computed, row.count = count;
  const int end = s.computed + count;
  row.samples = end == s.length();
  if (s.in_flight > 0) row.previous_row = s.logit_row;
  row.logit_begin = plan.logit_rows;
  row.logit_count = scores(s) && s.in_flight == 0 ? count : (row.samples ? 1 : 0);
  plan.tokens += count;
  plan.logit_rows += row.logit_count;
  if (row.logit_count > 1) planned_scores_ += row.logit_count;
  // Ranges lie in the prompt; those of a sequence that decodes would be cold.
  if (config_.max_range_tokens > 0 && s.in_flight == 0) planned_ranges_ += touched_ranges(s, row.first, end);
  plan.rows.push_back(row);
  newest().rows.push_back(OpenRow{&s, row.first, count, row.samples, false});
  ++s.open_rows;
  s.computed = end;
  if (row.samples) {
    // The row's own input token may be in flight itself; that one is collected before this plan is.
    ++s.in_flight;
    s.logit_row = plan.logit_rows - 1;
  }
}

void SchedulerCore::preempt(Plan& plan, Sequence& s) {
  TERN_CHECK(s.state == SeqState::kRunning);
  if (config_.v1 && config_.output_caching && config_.save_output_cache_for_preempted) cache_blocks(s, s.confirmed);
  give_back(s);
  running_.erase(std::find(running_.begin(), running_.end(), &s));
  s.state = SeqState::kWaiting;
  s.computed = s.confirmed = s.cached_blocks = 0;
  waiting_.push_front(&s);
  ++preempted_waiting_;
  ++counters_.preemptions;
  plan.preempted.push_back(s.id);
}

Sequence* SchedulerCore::candidate() const {
  if (slots_.free_count() == 0) return nullptr;
  Sequence* s = waiting_.front();
  return s && s->open_rows == 0 ? s : nullptr;
}

int SchedulerCore::match_prefix(Sequence& s) {
  matched_.clear();
  if (!s.use_cache || scores(s)) return 0;
  // The last token is always computed, so that there are logits.
  const int full = (s.known - 1) / config_.block_size;
  extend_hashes(s, index_.key(), config_.block_size, full);
  index_.match(std::span(s.hashes).first(static_cast<size_t>(full)), matched_);
  if (config_.disable_chunked_mm_input) {
    const int keep = roll_back_match(s, matched_blocks() * config_.block_size, config_.block_size);
    for (; matched_blocks() * config_.block_size > keep; matched_.pop_back()) pool_.release(matched_.back());
  }
  return matched_blocks() * config_.block_size;
}

void SchedulerCore::drop_match() {
  for (; !matched_.empty(); matched_.pop_back()) pool_.release(matched_.back());
}

void SchedulerCore::admit(Plan& plan, Sequence& s, int count) {
  waiting_.remove(&s);
  running_.push_back(&s);
  s.state = SeqState::kRunning;
  s.slot = slots_.take();
  waiting_.take_slot(&s);
  s.prefill_end = s.known;
  s.computed = s.confirmed = matched_blocks() * config_.block_size;
  s.cached_blocks = matched_blocks();
  s.tokens.reserve(static_cast<size_t>(s.limit));
  s.blocks.reserve(static_cast<size_t>(final_blocks(s)));
  s.blocks.assign(matched_.begin(), matched_.end());
  s.table = ++next_table_;
  grow(s, count);
  plan.admitted.push_back(Admission{s.id, s.slot, s.computed, s.counted});
  if (s.counted) {
    --preempted_waiting_;
    ++counters_.resumed;
  } else if (s.use_cache && !s.score_prompt) {
    counters_.prefix_lookup_tokens += static_cast<uint64_t>(s.known);
    counters_.prefix_hit_tokens += static_cast<uint64_t>(s.computed);
    ++counters_.prefix_lookups;
    if (!matched_.empty()) {
      ++counters_.prefix_hits;
      if (matched_blocks() == (s.known - 1) / config_.block_size) ++counters_.full_hits;
    }
  }
  s.counted = true;
  matched_.clear();
}

std::unique_ptr<Scheduler> make_scheduler(const SchedulerConfig& config, cache::BlockPool& pool,
                                          cache::PrefixIndex& index) {
  return config.v1 ? make_v1_scheduler(config, pool, index) : make_legacy_scheduler(config, pool, index);
}

}  // namespace tern::sched
