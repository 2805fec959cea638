#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "engine/loop/engine_impl.h"

namespace tern::engine {

SlotOwner owner_of(Generation& g) {
  constexpr int64_t kNever = std::numeric_limits<int32_t>::max();
  SlotOwner owner{.generation = &g, .id = g.id, .prompt = g.prompt, .rope_delta = g.rope_delta};
  // The token after `first` is the first that may end the answer.
  const int64_t first = int64_t{g.prompt} + std::max(g.min_tokens, 1) - 1;
  const bool asks_more = g.guided || !g.thought || g.request.sampling.logprobs >= 0;
  owner.plain_from = static_cast<int32_t>(asks_more ? kNever : std::min(first, kNever));
  owner.processors = g.processors & ~static_cast<uint32_t>(sample::kMinTokens);
  return owner;
}

// Plans and submits one more step. False when two are open, nothing can run, or the reader is too far behind.
bool EngineImpl::launch() {
  if (launched_ - collected_ == 2 || dead_ || generations_.empty() || outbox_.full()) return false;
  const int64_t begin = parts_.config.trace == nullptr ? 0 : monotonic_ns();
  Step& step = *parts_.steps[launched_ % 2];
  sched::Plan& plan = step.plan;
  parts_.scheduler->plan(plan);
  for (sched::SeqId id : plan.preempted) {
    if (Generation* g = find(id)) ++g->preemptions;
  }
  if (plan.empty()) return false;
  if (const int64_t delay = parts_.config.plan_delay_ns; delay > 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
  }
  step.begin();
  admit(step);
  for (size_t i = 0, count = plan.rows.size(); i < count; ++i) {
    i = step.add_plain_rows(i, slot_owners_, parts_.config.scheduler.block_size, *parts_.scheduler);
    if (i + sched::kAhead < count) prefetch(*owner(plan.rows[i + sched::kAhead]).generation, 1);
    if (i < count) build_row(step, i);
  }
  step.finish();
  if (step.masks.size() > 0) ask_masks(step, launched_ == collected_);
  submit_media(step);
  rank_->submit_forward(&step, last_launched_);
  last_launched_ = &step;
  if (launched_++ == collected_) oldest_since_ = monotonic_ns();
  rank_->submit_sample(&step);
  trace(StepPhase::kPlan, step, launched_ - 1, begin);
  return true;
}

void EngineImpl::trace(StepPhase phase, const Step& step, uint64_t n, int64_t begin_ns) {
  if (parts_.config.trace == nullptr) return;
  StepSpan span;
  span.phase = phase, span.step = n;
  span.tokens = step.plan.tokens, span.rows = static_cast<int32_t>(step.rows.size());
  span.begin_ns = begin_ns, span.end_ns = monotonic_ns();
  parts_.config.trace->add(span);
}

void EngineImpl::admit(Step& step) {
  if (step.plan.admitted.empty()) return;
  const int64_t now = monotonic_ns();
  for (const sched::Admission& a : step.plan.admitted) {
    Generation* g = find(a.seq);
    TERN_CHECK(g != nullptr && !g->ended);
    slot_owners_[static_cast<size_t>(a.slot)] = owner_of(*g);
    g->recount = false;
    step.sampling.updates.add(a.slot, g->request.sampling, g->stop_ids, g->request.prompt, g->output);
    if (g->admitted) continue;
    g->admitted = true;
    g->times.scheduled = now;
    g->cached_tokens = a.cached_tokens;
    g->output.reserve(static_cast<size_t>(g->request.max_tokens));
    prompt_tokens_ += static_cast<uint64_t>(g->prompt);
  }
}

void EngineImpl::build_row(Step& step, size_t i) {
  const sched::PlanRow& row = step.plan.rows[i];
  Generation* g = owner(row).generation;
  TERN_CHECK(g->id == row.seq);
  step.rows[i] = StepRow{.generation = g};
  const int first_token = step.batch.tokens;
  const sched::Scheduler::RowView view = parts_.scheduler->row(i);
  const std::span<const int32_t> positions = g->positioned ? g->request.positions : std::span<const int32_t>{};
  step.add_row(row,
               {view.tokens, view.blocks, parts_.config.scheduler.block_size, g->prompt, positions, g->rope_delta});
  if (std::exchange(g->recount, false)) {
    step.sampling.updates.add(row.slot, g->request.sampling, g->stop_ids, g->request.prompt, g->output);
  }
  if (g->pictured) take_media(step, row, first_token, *g);
  ask_sampler(step, i, *g);
}

// Logit row j speaks about the token after position first + j.
void EngineImpl::score_prompt(Step& step, size_t i, const Generation& g) {
  const sched::PlanRow& row = step.plan.rows[i];
  const int count = g.request.sampling.prompt_logprobs;
  if (count < 0 || row.first >= g.prompt - 1 || row.logit_count == 0) return;
  StepRow& out = step.rows[i];
  out.prompt_logprobs = step.sampling.requests();
  for (int j = 0; j < row.logit_count && row.first + j + 1 < g.prompt; ++j) {
    step.sampling.add_prompt_logprobs(row.logit_begin + j, g.request.prompt[static_cast<size_t>(row.first + j + 1)],
                                      count);
    ++out.prompt_scored;
  }
}

void EngineImpl::ask_sampler(Step& step, size_t i, const Generation& g) {
  const sched::PlanRow& row = step.plan.rows[i];
  StepRow& out = step.rows[i];
  sample::SamplingBatch& batch = step.sampling;
  if (g.scored) score_prompt(step, i, g);
  if (!row.samples) return;
  ops::SampleRow sr;
  sr.logit_row = row.logit_begin + row.logit_count - 1;
  sr.slot = row.slot;
  sr.position = row.first + row.count;
  sr.generated = sr.position - g.prompt;
  uint32_t bits = g.processors;
  if (sr.generated >= g.min_tokens) bits &= ~static_cast<uint32_t>(sample::kMinTokens);
  if (g.masked) bits |= sample::kMask;
  const SamplingParams& asked = g.request.sampling;
  // Whatever part of the mark comes before these rows is known not to be one.
  const auto mark = static_cast<int32_t>(asked.thinking_mark.size());
  if (g.thought || sr.generated < asked.thinking_limit - mark) bits &= ~static_cast<uint32_t>(sample::kThinking);
  sr.thinking = (bits & sample::kThinking) != 0 ? 1 : 0;
  out.sample_row = batch.add(sr, bits);
  if (g.masked) out.mask = step.masks.add(static_cast<int>(i), out.sample_row, batch.mask(out.sample_row));
  if (g.scored && g.request.sampling.logprobs >= 0) {
    out.logprobs = batch.requests();
    batch.add_logprobs(sr, g.request.sampling, bits);
  }
}

// `last`: no step before this one is open, so that whatever is to be known of its rows is known.
void EngineImpl::ask_masks(Step& step, bool last) {
  for (MaskRow& mask : step.masks.rows()) {
    const auto i = static_cast<size_t>(mask.step_row);
    Generation& g = *step.rows[i].generation;
    const sched::PlanRow& row = step.plan.rows[i];
    guidance_->ask(g, mask, row.first + row.count - g.prompt, last);
  }
  guidance_->flush();
}

}  // namespace tern::engine
