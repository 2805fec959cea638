#include "engine/step/step_clock.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/step/step.h"

namespace tern::engine {

Expected<std::unique_ptr<StepClock>> StepClock::create(device::Device& device, StepTrace& trace) {
  std::unique_ptr<StepClock> clock(new StepClock(device, trace));
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

void StepClock::tell(StepPhase phase, const Step& step, uint64_t n, int64_t begin_ns, int64_t end_ns, int64_t idle_ns) {
  StepSpan span;
  span.phase = phase, span.replayed = step.replayed;
  span.tokens = step.batch.tokens, span.rows = step.batch.rows;
  span.step = n, span.begin_ns = begin_ns, span.end_ns = end_ns, span.idle_ns = idle_ns;
  trace_.add(span);
}

void StepClock::forward_begins() {
  Marks& m = marks_[forwards_ % kDepth];
  m.launched_ns = monotonic_ns();
  m.usable = m.begin->record(device_.stream()).ok();
  host_begin_ns_ = monotonic_ns();  // what the clock itself costs is no part of a step
}

void StepClock::forward_ends(const Step& step) {
  tell(StepPhase::kLaunch, step, forwards_++, host_begin_ns_, monotonic_ns());
}

void StepClock::sample_begins() { host_begin_ns_ = monotonic_ns(); }

void StepClock::sample_ends(const Step& step) {
  Marks& m = marks_[samples_ % kDepth];
  const int64_t end = monotonic_ns();
  m.usable = m.usable && m.end->record(device_.stream()).ok();
  tell(StepPhase::kLaunch, step, samples_++, host_begin_ns_, end);
}

// Events know only the time between two of them, with the precision of a float: times are summed from step to step, and
// what the host knows for certain corrects the sum.
void StepClock::done(const Step& step) {
  const uint64_t n = told_++;
  const Marks& m = marks_[n % kDepth];
  if (!m.usable) return;
  const auto idle = m.begin->nanoseconds_since(*last_), work = m.end->nanoseconds_since(*m.begin);
  if (!idle.ok() || !work.ok()) return;
  int64_t begin = std::max(last_ns_ + *idle, m.launched_ns);
  begin = std::min(begin, monotonic_ns() - *work);
  tell(StepPhase::kDevice, step, n, begin, begin + *work, last_ == anchor_.get() ? -1 : *idle);
  last_ = m.end.get(), last_ns_ = begin + *work;
}

}  // namespace tern::engine
