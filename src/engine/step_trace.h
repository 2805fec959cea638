// What a step did when, told to whoever wants to know: a trace file, a benchmark.
#pragma once

#include <cstdint>

namespace tern::engine {

enum class StepPhase : uint8_t {
  kPlan,     // engine thread: planning, filling, submitting
  kLaunch,   // rank thread: giving the step's work to the device; on a CPU that is the work itself
  kDevice,   // the device works on it
  kCollect,  // engine thread: results become tokens
};

struct StepSpan {
  StepPhase phase = StepPhase::kPlan;
  bool replayed = false;  // the forward pass was a graph
  int32_t tokens = 0;     // of the step
  int32_t rows = 0;       // sequences
  int32_t engine = 0;     // of several, which one
  uint64_t step = 0;      // number, from 0
  int64_t begin_ns = 0;   // monotonic_ns()
  int64_t end_ns = 0;
  int64_t idle_ns = -1;  // kDevice: from the end of the step before to the begin of this one; -1: unknown
};

class StepTrace {
 public:
  virtual ~StepTrace() = default;
  // By the engine's and the rank's thread, on the step path: must neither wait nor fail.
  virtual void add(const StepSpan& span) = 0;
};

}  // namespace tern::engine
