// When the device began and ended each step, on the host's clock: timed events around a step's work, a few steps deep.
#pragma once

#include <array>
#include <memory>

#include "device/device.h"
#include "engine/step_trace.h"

namespace tern::engine {

// Of the rank thread.
class StepClock {
 public:
  // Waits for the stream once, to lay the device's clock beside the host's.
  static Expected<std::unique_ptr<StepClock>> create(device::Device& device, StepTrace& trace);

  // Around everything that step `n` gives to the stream.
  Status begin(uint64_t n, device::Stream stream);
  Status end(uint64_t n, device::Stream stream);
  // Step `n` is done: tells the trace. `span` brings tokens, rows and how it ran; `launched_ns` is when the host began
  // to launch it. Steps are told in order, at most kDepth - 1 after their begin.
  void tell(uint64_t n, StepSpan span, int64_t launched_ns);

 private:
  static constexpr uint64_t kDepth = 4;
  struct Marks {
    std::unique_ptr<device::Event> begin, end;
  };

  StepClock(StepTrace& trace) : trace_(trace) {}

  StepTrace& trace_;
  std::array<Marks, kDepth> marks_;
  std::unique_ptr<device::Event> anchor_;
  const device::Event* last_ = nullptr;  // a point whose time on the host's clock is last_ns_
  int64_t last_ns_ = 0;
  bool first_ = true;
};

}  // namespace tern::engine
