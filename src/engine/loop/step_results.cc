#include "engine/loop/step_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/stops.h"
#include "ops/thinking.h"

namespace tern::engine {
namespace {

Error not_a_number() {
  return make_error(ErrorCode::kInternal,
                    "the model's output for this request is not a number (NaN); the request was ended, others go on");
}

Error too_many_kept(int64_t most) {
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("the sampling masks of this answer hold more than {} ids (--enable-keep-sampling-mask); "
                  "a lower top_p, or a top_k, makes them smaller",
                  most),
      "top_p");
}

}  // namespace

StepResults::StepResults(const EngineParts& parts, OpenSteps& steps, OpenRequests& requests, Pictures& pictures,
                         Guidance* guidance, News& news)
    : parts_(parts), steps_(steps), requests_(requests), pictures_(pictures), guidance_(guidance), news_(news) {
  const auto rows = static_cast<size_t>(parts.config.scheduler.max_num_seqs);
  results_.reserve(rows), finished_.reserve(rows);
  tokens_.reserve(rows * (guidance != nullptr ? 1 + Guide::kMostForced : 1));
}

void StepResults::collect(Step& step, int64_t now) {
  pictures_.collect(step);
  results_.clear(), tokens_.clear(), finished_.clear();
  for (size_t i = 0; i < step.rows.size(); ++i) {
    if (i + sched::kAhead < step.rows.size()) prefetch(*step.rows[i + sched::kAhead].generation, 3);
    if (i + sched::kAhead / 2 < step.rows.size())
      sched::prefetch_end(step.rows[i + sched::kAhead / 2].generation->output);
    Generation& g = *step.rows[i].generation;
    if (!g.ended && step.rows[i].prompt_scored > 0) take_prompt_logprobs(step, i, g);
    if (parts_.pooled > 0) {
      take_pooled(step, i, g, now);
    } else if (step.plan.rows[i].samples) {
      take_row(step, i, g, now);
    }
    if (g.pictured) pictures_.release(g, step.plan.rows[i].first + step.plan.rows[i].count);
    if (g.ended && !steps_.has_rows(g, 1)) finished_.push_back(&g);
  }
  parts_.scheduler->collect(results_);
  steps_.collect();
  for (Generation* g : finished_) requests_.forget(*g);
}

void StepResults::take_prompt_logprobs(const Step& step, size_t i, Generation& g) {
  const StepRow& row = step.rows[i];
  for (int j = 0; j < row.prompt_scored; ++j) {
    auto& out = g.prompt_logprobs[static_cast<size_t>(step.plan.rows[i].first + j)];
    out.clear();
    for (const ops::TokenScore& s : step.sampling.scores(row.prompt_logprobs + j)) {
      if (std::isnan(s.value)) {
        parts_.scheduler->abort(g.request.id);
        pictures_.forget(g);
        return requests_.end_error(g, not_a_number());
      }
      out.push_back({s.id, s.value, s.rank});
    }
  }
}

// A pooling model's rows. The scheduler is told of a token, which nobody sees, where the prompt has been computed.
void StepResults::take_pooled(const Step& step, size_t i, Generation& g, int64_t now) {
  static constexpr int32_t kToken = 0;
  const sched::PlanRow& row = step.plan.rows[i];
  const bool failed = !g.ended && step.status.ok() && !keep_pooled(step, row, g);
  if (failed) {
    if (!row.samples) parts_.scheduler->abort(g.request.id);
    pictures_.forget(g);
    requests_.end_error(g, not_a_number());
  }
  if (!row.samples) return;
  results_.push_back({row.seq, {&kToken, failed ? size_t{0} : size_t{1}}, true});
  if (g.ended) return;
  g.ended = true;
  g.times.first_token = g.times.finished = now;
  requests_.begin_last(g).head.finish = FinishReason::kStop;
  news_.extra().pooled = std::move(g.pooled);
}

// False: they are no numbers.
bool StepResults::keep_pooled(const Step& step, const sched::PlanRow& row, Generation& g) const {
  for (int j = 0; j < row.logit_count; ++j) {
    const std::span<const float> values = step.pooled(row.logit_begin + j);
    const PooledRows wanted = g.request.pooled;
    if (wanted == PooledRows::kFirst && row.first + j > 0) return true;
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) return false;
    if (wanted == PooledRows::kMean) {
      add_to_mean(values, row.first + j, g);
      continue;
    }
    const int place = wanted == PooledRows::kAll ? row.first + j : 0;
    std::ranges::copy(values, g.pooled.begin() + std::ptrdiff_t{place} * parts_.pooled);
  }
  return true;
}

// Rows come in the order of positions; those that a preemption has computed again count once.
void StepResults::add_to_mean(std::span<const float> values, int32_t position, Generation& g) {
  if (position < g.pooled_count) return;
  TERN_CHECK(position == g.pooled_count);
  for (size_t i = 0; i < values.size(); ++i) g.pooled_sum[i] += static_cast<double>(values[i]);
  if (++g.pooled_count < g.prompt) return;
  for (size_t i = 0; i < values.size(); ++i) g.pooled[i] = static_cast<float>(g.pooled_sum[i] / g.prompt);
}

// Whether what the row sampled is the next token of its answer. `forced`: what follows it, if anything.
bool StepResults::says_something(Step& step, size_t i, Generation& g, std::span<const int32_t>& forced) {
  const sched::PlanRow& row = step.plan.rows[i];
  MaskRow* mask = step.rows[i].mask < 0 ? nullptr : &step.masks.rows()[static_cast<size_t>(step.rows[i].mask)];
  const MaskState state = mask == nullptr ? MaskState::kReady : guidance_->settle(g, *mask);
  if (state == MaskState::kReady && mask != nullptr) forced = mask->forced;
  // Planned before a token was dropped or others came with it: the scheduler has voided the row.
  if (row.first + row.count != g.prompt + static_cast<int>(g.output.size())) return false;
  if (mask == nullptr && g.masked) {  // sampled without a mask before the grammar was seen to begin
    g.recount = true;
    return false;
  }
  if (state == MaskState::kFailed) requests_.end_error(g, g.guide->error());
  return state == MaskState::kReady;
}

void StepResults::take_row(Step& step, size_t i, Generation& g, int64_t now) {
  const sched::PlanRow& row = step.plan.rows[i];
  const int32_t logit_row = row.logit_begin + row.logit_count - 1;
  // Within the reserved capacity: spans into it stay valid.
  const size_t begin = tokens_.size();
  tokens_.push_back(step.status.ok() ? step.sampling.id(logit_row) : 0);
  std::span<const int32_t> tokens(tokens_.data() + begin, 1);
  if (g.ended) {
    results_.push_back({row.seq, tokens, true});
    return;
  }
  std::span<const int32_t> forced;
  if (g.guided && !says_something(step, i, g, forced)) {
    results_.push_back({row.seq, {}, g.ended});
    return;
  }
  const ops::SampleStatus status = step.sampling.status(logit_row);
  if (status != ops::kSampleOk) {
    if (status == ops::kSampleNan) pictures_.forget(g);
    requests_.end_error(
        g, status == ops::kSampleNan
               ? not_a_number()
               : make_error(ErrorCode::kInvalidArgument, "no token is allowed to follow: masks exclude all of them"));
    results_.push_back({row.seq, {}, true});
    return;
  }
  if (!keeps_within(step, step.rows[i].facts, g)) {
    requests_.end_error(g, too_many_kept(parts_.config.most_kept_ids));
    results_.push_back({row.seq, {}, true});
    return;
  }
  if (forced.size() > 1 && forced[0] == tokens[0]) {
    tokens_.insert(tokens_.end(), forced.begin() + 1, forced.end());
    tokens = {tokens_.data() + begin, forced.size()};
  }
  const size_t taken = take_tokens(step, i, g, tokens, now);
  results_.push_back({row.seq, tokens.first(taken), g.ended});
}

// The output has a new last token: whether it ends reasoning. The answer after it has a limit and a grammar of its
// own.
void StepResults::watch_thinking(Generation& g) {
  const SamplingParams& p = g.request.sampling;
  const auto said = static_cast<int32_t>(g.output.size());
  ops::advance_thinking(g.thinking, sample::thinking_ids(p), g.output.back(),
                        p.thinking_limit >= 0 && said > p.thinking_limit);
  if (g.thinking.matched >= 0) return;
  g.thought = true;
  if (g.guided) guidance_->begin(g);
  if (const int32_t most = g.request.max_answer_tokens; most > 0) g.max_tokens = std::min(g.max_tokens, said + most);
}

FinishReason StepResults::judge(Generation& g, float prob, StopHit& hit) {
  const EngineConfig& c = parts_.config;
  StopRules rules{g.stop_ids, {}};
  if (g.stops_by_words) rules.sequences = g.request.stop_sequences;
  hit = find_stop(rules, g.output, g.min_tokens);
  if (hit.found()) return FinishReason::kStop;
  if (c.early_stop) {
    g.sure_tokens = static_cast<double>(prob) > c.early_stop_threshold ? g.sure_tokens + 1 : 0;
    if (g.sure_tokens >= c.early_stop_window) return FinishReason::kStop;
  }
  return static_cast<int32_t>(g.output.size()) >= g.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

// The sampled token, and what has to follow it until the answer ends. Returns how many were taken.
size_t StepResults::take_tokens(const Step& step, size_t i, Generation& g, std::span<const int32_t> ids, int64_t now) {
  const StepRow& row = step.rows[i];
  const sched::PlanRow& planned = step.plan.rows[i];
  const bool first = g.output.empty();
  if (first) g.times.first_token = now;
  const float prob =
      parts_.config.early_stop ? step.sampling.prob(planned.logit_begin + planned.logit_count - 1) : 0.0f;
  StopHit hit;
  FinishReason finish = FinishReason::kNone;
  size_t taken = 0;
  while (taken < ids.size() && finish == FinishReason::kNone) {
    g.output.push_back(ids[taken]);
    if (!g.thought) watch_thinking(g);
    finish = judge(g, taken == 0 ? prob : 1.0f, hit);
    ++taken;
  }
  generated_tokens_ += taken;
  g.recount = g.recount || taken > 1;
  if (finish != FinishReason::kNone) {
    g.ended = true;
    g.times.finished = now;
    if (g.guided) guidance_->close(g);
  }
  News::Event& e = finish == FinishReason::kNone ? requests_.event_of(g) : requests_.begin_last(g);
  e.head.finish = finish;
  e.head.stop_sequence = hit.sequence;
  e.head.stop_token = hit.token;
  for (size_t t = 0; t < taken; ++t) {
    news_.token(ids[t]);
    if (row.facts >= 0) add_facts(step.sampling.facts, row.facts, g, t == 0 ? -1 : ids[t]);
  }
  if (row.logprobs >= 0) add_scores(step.sampling, row.logprobs);
  if (first && !g.prompt_logprobs.empty()) news_.extra().prompt_logprobs = std::move(g.prompt_logprobs);
  return taken;
}

// What the last token of the news was drawn from. `forced`: its id, where it was all there was; else -1.
void StepResults::add_facts(const sample::DrawFacts& facts, int number, const Generation& g, int32_t forced) {
  const EngineConfig& c = parts_.config;
  if (c.entropy) news_.entropy(forced >= 0 ? 0.0f : facts.entropy(number));
  if (!c.kept_tokens || !g.request.sampling.truncates()) return;
  if (forced >= 0) return news_.kept(forced);
  const std::span<const uint32_t> bits = facts.kept(number);
  for (size_t w = 0; w < bits.size(); ++w) {
    for (uint32_t left = bits[w]; left != 0; left &= left - 1) {
      news_.kept(static_cast<int32_t>(32 * w) + std::countr_zero(left));
    }
  }
}

// Adds up the ids that the request's tokens were drawn from; false: they are too many to keep.
bool StepResults::keeps_within(const Step& step, int number, Generation& g) const {
  if (!parts_.config.kept_tokens || number < 0 || !g.request.sampling.truncates()) return true;
  for (const uint32_t word : step.sampling.facts.kept(number)) g.kept_ids += std::popcount(word);
  return g.kept_ids <= parts_.config.most_kept_ids;
}

void StepResults::add_scores(const sample::SamplingBatch& batch, int request) {
  for (const ops::TokenScore& s : batch.scores(request)) news_.logprob({s.id, s.value, s.rank});
}

}  // namespace tern::engine
