// Fills a step from its plan: inputs of its rows, what the sampler is asked, slots of who is admitted.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/loop/engine_parts.h"
#include "engine/loop/open_requests.h"
#include "engine/loop/pictures.h"
#include "engine/step/step.h"

namespace tern::engine {

class StepBuilder {
 public:
  StepBuilder(const EngineParts& parts, OpenRequests& requests, Pictures& pictures);

  // Right after Scheduler::plan(step.plan).
  void fill(Step& step, int64_t plan_began);
  uint64_t prompt_tokens() const { return prompt_tokens_; }  // of all requests admitted so far

 private:
  void admit(Step& step, int64_t plan_began);
  void build_row(Step& step, size_t i);
  void score_prompt(Step& step, size_t i, const Generation& g);
  void ask_sampler(Step& step, size_t i, const Generation& g);

  const EngineParts& parts_;
  OpenRequests& requests_;
  Pictures& pictures_;
  std::vector<SlotOwner> owners_;  // by slot: who was admitted to it last
  uint64_t prompt_tokens_ = 0;
};

}  // namespace tern::engine
