#include "engine/loop/step_builder.h"

#include <span>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace tern::engine {

StepBuilder::StepBuilder(const EngineParts& parts, OpenRequests& requests, Pictures& pictures)
    : parts_(parts), requests_(requests), pictures_(pictures) {
  owners_.resize(static_cast<size_t>(parts.config.scheduler.max_num_seqs));
}

void StepBuilder::fill(Step& step, int64_t plan_began) {
  const std::vector<sched::PlanRow>& planned = step.plan.rows;
  step.begin();
  admit(step, plan_began);
  for (size_t i = 0, count = planned.size(); i < count; ++i) {
    i = step.add_plain_rows(i, owners_, parts_.config.scheduler.block_size, *parts_.scheduler);
    if (i + sched::kAhead < count) {
      prefetch(*owners_[static_cast<size_t>(planned[i + sched::kAhead].slot)].generation, 1);
    }
    if (i < count) build_row(step, i);
  }
  step.finish();
}

void StepBuilder::admit(Step& step, int64_t plan_began) {
  if (step.plan.admitted.empty()) return;
  const int64_t now = monotonic_ns();
  for (const sched::Admission& a : step.plan.admitted) {
    Generation* g = requests_.find(a.seq);
    TERN_CHECK(g != nullptr && !g->ended);
    owners_[static_cast<size_t>(a.slot)] = owner_of(*g);
    g->recount = false;
    if (parts_.pooled == 0) {
      step.sampling.updates.add(a.slot, g->request.sampling, g->stop_ids, g->request.prompt, g->output);
    }
    if (g->admitted) {
      if (!g->interruptions.empty()) g->interruptions.back().end = now;
      continue;
    }
    g->admitted = true;
    g->times.planned = plan_began;
    g->times.scheduled = now;
    g->cached_tokens = a.cached_tokens;
    g->output.reserve(static_cast<size_t>(g->request.max_tokens));
    prompt_tokens_ += static_cast<uint64_t>(g->prompt);
  }
}

void StepBuilder::build_row(Step& step, size_t i) {
  const sched::PlanRow& row = step.plan.rows[i];
  Generation* g = owners_[static_cast<size_t>(row.slot)].generation;
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
  if (g->pictured) pictures_.take(step, row, first_token, *g);
  if (parts_.pooled == 0) ask_sampler(step, i, *g);
}

// Logit row j speaks about the token after position first + j.
void StepBuilder::score_prompt(Step& step, size_t i, const Generation& g) {
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

void StepBuilder::ask_sampler(Step& step, size_t i, const Generation& g) {
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
  if (g.drawn_from) {
    out.facts = batch.facts.add(sr.logit_row, g.request.sampling);
    batch.set_late(out.sample_row);
  }
}

}  // namespace tern::engine
