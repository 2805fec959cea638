// Takes in what a finished step sampled: confirms progress, says tokens, ends what is complete.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/loop/engine_parts.h"
#include "engine/loop/open_requests.h"
#include "engine/loop/open_steps.h"
#include "engine/loop/pictures.h"
#include "engine/masks/guidance.h"
#include "engine/outbox.h"
#include "engine/stops.h"

namespace tern::engine {

class StepResults {
 public:
  StepResults(const EngineParts& parts, OpenSteps& steps, OpenRequests& requests, Pictures& pictures,
              Guidance* guidance, News& news);

  // The oldest open step, which is done. `now`: the time of everything it says.
  void collect(Step& step, int64_t now);
  uint64_t generated_tokens() const { return generated_tokens_; }

 private:
  void take_prompt_logprobs(const Step& step, size_t i, Generation& g);
  void take_pooled(const Step& step, size_t i, Generation& g, int64_t now);
  bool keep_pooled(const Step& step, const sched::PlanRow& row, Generation& g) const;
  static void add_to_mean(std::span<const float> values, int32_t position, Generation& g);
  void take_row(Step& step, size_t i, Generation& g, int64_t now);
  bool says_something(Step& step, size_t i, Generation& g, std::span<const int32_t>& forced);
  size_t take_tokens(const Step& step, size_t i, Generation& g, std::span<const int32_t> ids, int64_t now);
  void watch_thinking(Generation& g);
  FinishReason judge(Generation& g, float prob, StopHit& hit);
  void add_scores(const sample::SamplingBatch& batch, int request);
  void add_facts(const sample::DrawFacts& facts, int number, const Generation& g, int32_t forced);
  bool keeps_within(const Step& step, int number, Generation& g) const;

  const EngineParts& parts_;
  OpenSteps& steps_;
  OpenRequests& requests_;
  Pictures& pictures_;
  Guidance* guidance_;  // null: no masks
  News& news_;
  std::vector<Generation*> finished_;  // in this step, to be forgotten
  std::vector<sched::Scheduler::RowResult> results_;
  std::vector<int32_t> tokens_;  // that they name; spans into it stay valid within the reserved capacity
  uint64_t generated_tokens_ = 0;
};

}  // namespace tern::engine
