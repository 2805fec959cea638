#include "engine/step_clock.h"

#include <algorithm>

#include "base/clock.h"

namespace tern::engine {

Expected<std::unique_ptr<StepClock>> StepClock::create(device::Device& device, StepTrace& trace) {
  std::unique_ptr<StepClock> clock(new StepClock(trace));
  for (Marks& m : clock->marks_) {
    TERN_ASSIGN_OR_RETURN(m.begin, device.make_timed_event());
    TERN_ASSIGN_OR_RETURN(m.end, device.make_timed_event());
  }
  TERN_ASSIGN_OR_RETURN(clock->anchor_, device.make_timed_event());
  TERN_RETURN_IF_ERROR(device.synchronize(device.stream()));
  TERN_RETURN_IF_ERROR(clock->anchor_->record(device.stream()));
  TERN_RETURN_IF_ERROR(clock->anchor_->synchronize());
  clock->last_ = clock->anchor_.get();
  clock->last_ns_ = monotonic_ns();
  return clock;
}

Status StepClock::begin(uint64_t n, device::Stream stream) { return marks_[n % kDepth].begin->record(stream); }
Status StepClock::end(uint64_t n, device::Stream stream) { return marks_[n % kDepth].end->record(stream); }

// Events know only the time between two of them, with the precision of a float: times are summed from step to step, and
// what the host knows for certain corrects the sum.
void StepClock::tell(uint64_t n, StepSpan span, int64_t launched_ns) {
  const Marks& m = marks_[n % kDepth];
  const auto idle = m.begin->nanoseconds_since(*last_), work = m.end->nanoseconds_since(*m.begin);
  if (!idle.ok() || !work.ok()) return;
  const int64_t done = monotonic_ns();
  span.phase = StepPhase::kDevice;
  span.step = n;
  span.idle_ns = first_ ? -1 : *idle;
  span.begin_ns = std::max(last_ns_ + *idle, launched_ns);
  span.begin_ns = std::min(span.begin_ns, done - *work);
  span.end_ns = span.begin_ns + *work;
  trace_.add(span);
  first_ = false;
  last_ = m.end.get(), last_ns_ = span.end_ns;
}

}  // namespace tern::engine
