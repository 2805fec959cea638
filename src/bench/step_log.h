// Spans of steps kept in memory, and what they say about a run of steps.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/step_trace.h"

namespace tern::bench {

// Of steps in which every one of `rows` sequences decodes one token. Times in seconds.
struct StepFigures {
  int steps = 0;                             // pairs of consecutive ones
  double mean = 0, p50 = 0, p99 = 0;         // from the device's start of a step to that of the next
  double device = 0;                         // the device works on one, median
  double idle_p50 = 0, idle_p99 = 0;         // between the end of one and the start of the next
  double plan = 0, launch = 0, collect = 0;  // host threads, median per step
  double replayed = 0;                       // share of steps that were graphs
};

class StepLog final : public engine::StepTrace {
 public:
  // Keeps up to `most` spans; further ones are lost. `next` is told as well.
  explicit StepLog(size_t most, engine::StepTrace* next = nullptr);
  void add(const engine::StepSpan& span) override;
  // Of the spans since the last call of clear().
  StepFigures figures(int rows) const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::vector<engine::StepSpan> spans_;
  engine::StepTrace* next_;
};

}  // namespace tern::bench
