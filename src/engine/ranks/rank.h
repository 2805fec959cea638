// A rank: one thread that owns a device's streams and gives them submissions in order. A step is two of them, forward
// and sample; sampling may wait for masks of the host, at most until forward is done where others would wait for it. A
// step with pictures to encode has a third in front. The thread waits for the device only when there is nothing to give
// it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "device/device.h"
#include "engine/ranks/step_runner.h"
#include "engine/step/step_clock.h"

namespace tern::engine {

class Rank {
 public:
  struct Faults {
    device::Fault fault = device::Fault::kNone;  // met by the step number `step`, counted from 1
    uint64_t step = 0;
    int rank = 0;
  };
  // `done` is called by the rank's thread after every finished step, without a lock held.
  Rank(StepRunner runner, const Faults& faults, void (*done)(void*), void* context);
  ~Rank();  // finishes what was submitted, unless it was abandoned

  // Encodes the step's pictures; before submit_forward of the same step, which waits for it.
  void submit_vision(Step* step);
  // `previous`: the step launched before, whose sampled ids this one reads; null for the first.
  void submit_forward(Step* step, const Step* previous);
  void submit_sample(Step* step);
  // The device does not answer: the thread waits for nothing any more and ends as soon as the driver lets it. What was
  // submitted never finishes.
  void abandon();

 private:
  enum class Kind : uint8_t { kVision, kForward, kSample };
  struct Submission {
    Kind kind = Kind::kForward;
    Step* step = nullptr;
    const Step* previous = nullptr;
  };
  // A step that was given to the device as a whole.
  struct Open {
    Step* step = nullptr;
    std::unique_ptr<device::Event> end;
    bool recorded = false;  // false: something of it was refused, there is no end to wait for
  };
  static constexpr size_t kDepth = 8;  // two steps of three submissions, and room

  void submit(Submission submission);
  void run();
  Status prepare();
  bool next(Submission& s);
  bool masks_settled(Step& step);
  void give(const Submission& s);
  Status run(const Submission& s);
  Status forward(const Submission& s);
  void fail(Step& step, Status status);
  void open(Step& step);
  void report();
  void finish(Open& oldest);

  StepRunner runner_;
  Faults faults_;
  void (*done_)(void*);
  void* context_;
  mutable std::mutex mutex_;
  std::condition_variable submitted_;
  Submission queue_[kDepth];
  size_t head_ = 0, count_ = 0;
  bool stopping_ = false, abandoned_ = false;
  // Of the thread alone.
  bool failed_ = false, unfinished_ = false;    // unfinished_: what is at the head of the queue is not all given
  std::unique_ptr<device::Event> forward_end_;  // of the step whose sample waits for masks
  std::array<Open, 2> open_;
  size_t opened_ = 0, closed_ = 0;  // open_[closed_ % 2] is the oldest
  uint64_t forwards_ = 0;
  std::unique_ptr<StepClock> clock_;  // null: steps are not timed
  std::thread thread_;
};

}  // namespace tern::engine
