// When the host gave each step to the device, and when the device began and ended it, on the host's clock: timed events
// around a step's work, a few steps deep.
#pragma once

#include <array>
#include <memory>

#include "device/device.h"
#include "engine/step_trace.h"

namespace tern::engine {

struct Step;

// Of the rank thread. Its own errors are not reported: what cannot be timed is left out.
class StepClock {
 public:
  // Waits for the stream once, to lay the device's clock beside the host's.
  static Expected<std::unique_ptr<StepClock>> create(device::Device& device, StepTrace& trace);

  // Around what the host does for a step: forward, then sample. Steps come in order.
  void forward_begins();
  void forward_ends(const Step& step);
  void sample_begins();
  void sample_ends(const Step& step);
  // The oldest step not told yet is done on the device.
  void done(const Step& step);

 private:
  static constexpr uint64_t kDepth = 4;
  struct Marks {
    std::unique_ptr<device::Event> begin, end;
    int64_t launched_ns = 0;
    bool usable = false;
  };

  StepClock(device::Device& device, StepTrace& trace) : device_(device), trace_(trace) {}
  void tell(StepPhase phase, const Step& step, uint64_t n, int64_t begin_ns, int64_t end_ns, int64_t idle_ns = -1);

  device::Device& device_;
  StepTrace& trace_;
  std::array<Marks, kDepth> marks_;
  std::unique_ptr<device::Event> anchor_;
  const device::Event* last_ = nullptr;  // a point whose time on the host's clock is last_ns_
  int64_t last_ns_ = 0, host_begin_ns_ = 0;
  uint64_t forwards_ = 0, samples_ = 0, told_ = 0;  // steps so far
};

}  // namespace tern::engine
