#include "engine/ranks/rank.h"

#include <sys/prctl.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/thread_pool.h"

namespace tern::engine {
namespace {

// Between two looks at the device. The next step is in its queue by then, so the device does not wait for this.
constexpr auto kLook = std::chrono::microseconds(20);

// What a profiler shows of this thread.
class Range {
 public:
  Range(device::Device& device, const char* name) : device_(device) { device_.range_push(name); }
  ~Range() { device_.range_pop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  device::Device& device_;
};

}  // namespace

Rank::Rank(StepRunner runner, const Faults& faults, void (*done)(void*), void* context)
    : runner_(std::move(runner)), faults_(faults), done_(done), context_(context), thread_([this] { run(); }) {}

Rank::~Rank() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_one();
  thread_.join();
}

void Rank::submit_vision(Step* step) { submit({Kind::kVision, step, nullptr}); }
void Rank::submit_forward(Step* step, const Step* previous) { submit({Kind::kForward, step, previous}); }
void Rank::submit_sample(Step* step) { submit({Kind::kSample, step, nullptr}); }

void Rank::submit(Submission submission) {
  {
    std::lock_guard lock(mutex_);
    TERN_CHECK(count_ < kDepth);
    queue_[(head_ + count_++) % kDepth] = submission;
  }
  submitted_.notify_one();
}

void Rank::abandon() {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  submitted_.notify_one();
}

void Rank::run() {
  set_thread_name("rank-0");
  if (const Status ready = prepare(); !ready.ok()) {
    failed_ = true;
    TERN_ERROR("the device cannot be used: {}", ready.error().message);
  }
  Submission s;
  for (;;) {
    // First what is done: on a device that works at once a step is told before the next one begins.
    report();
    if (!next(s)) return;
    if (s.step != nullptr) give(s);
  }
}

Status Rank::prepare() {
  (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // nanoseconds; the default adds 50 microseconds to kLook
  TERN_RETURN_IF_ERROR(runner_.device().bind_thread());
  runner_.device().settle_thread();
  for (Open& o : open_) {
    TERN_ASSIGN_OR_RETURN(o.end, runner_.device().make_event());
  }
  TERN_ASSIGN_OR_RETURN(forward_end_, runner_.device().make_event());
  if (StepTrace* trace = runner_.parts().trace; trace != nullptr) {
    TERN_ASSIGN_OR_RETURN(clock_, StepClock::create(runner_.device(), *trace));
  }
  return {};
}

// Takes the oldest submission; pictures that are not all launched stay at the head, and so does a sample whose masks
// are not there. `s.step` is null when it is time to look at the device again. False: the thread ends.
bool Rank::next(Submission& s) {
  s = {};
  std::unique_lock lock(mutex_);
  const bool looking = opened_ > closed_ || unfinished_;
  const auto wanted = [&] { return (count_ > 0 && !unfinished_) || (stopping_ && !looking) || abandoned_; };
  if (looking) {
    (void)submitted_.wait_for(lock, kLook, wanted);
  } else {
    submitted_.wait(lock, wanted);
  }
  if (abandoned_) return false;
  if (count_ == 0) return looking || !stopping_;
  s = queue_[head_];
  if (s.kind == Kind::kSample && !masks_settled(*s.step)) {
    unfinished_ = true;
    s = {};
    return true;
  }
  if (s.kind == Kind::kSample) unfinished_ = false;
  if (s.kind == Kind::kVision) return true;  // leaves the queue when it is complete
  head_ = (head_ + 1) % kDepth;
  --count_;
  return true;
}

// Whether the step can be sampled. Once its forward pass is done, rows without a mask miss the step where others would
// wait for them; a step of nothing but such rows waits for the first mask.
bool Rank::masks_settled(Step& step) {
  if (step.masks.size() == 0 || failed_) return true;
  if (step.masks.waiting()) {
    if (!forward_end_->done()) return false;
    if (step.rows.size() == step.masks.size() && !step.masks.any_ready()) return false;
    step.masks.close();
  }
  for (const MaskRow& row : step.masks.rows()) {
    if (row.state.load(std::memory_order_acquire) != MaskState::kReady) step.sampling.drop(row.sample_row);
  }
  return true;
}

void Rank::give(const Submission& s) {
  // After a failure the device's state is unknown: nothing further runs, every step reports an error.
  Status status = failed_ ? Status(make_error(ErrorCode::kUnavailable, "an earlier step failed")) : run(s);
  if (!status.ok()) fail(*s.step, std::move(status));
  if (s.kind == Kind::kSample) open(*s.step);
  if (s.kind != Kind::kVision || (unfinished_ && !failed_)) return;
  unfinished_ = false;
  std::lock_guard lock(mutex_);
  head_ = (head_ + 1) % kDepth;
  --count_;
}

Status Rank::run(const Submission& s) {
  switch (s.kind) {
    case Kind::kVision: {
      TERN_ASSIGN_OR_RETURN(const bool complete, runner_.parts().vision->advance(s.step->vision));
      unfinished_ = !complete;
      return {};
    }
    case Kind::kForward:
      if (faults_.fault != device::Fault::kNone && ++forwards_ == faults_.step) {
        TERN_RETURN_IF_ERROR(runner_.inject(faults_.rank, faults_.fault));
      }
      return forward(s);
    case Kind::kSample:
      break;
  }
  if (clock_ != nullptr) clock_->sample_begins();
  const Range range(runner_.device(), "sample");
  Status status = runner_.sample(*s.step);
  if (clock_ != nullptr) clock_->sample_ends(*s.step);
  return status;
}

Status Rank::forward(const Submission& s) {
  if (clock_ != nullptr) clock_->forward_begins();
  const Range range(runner_.device(), "forward");
  Status status = runner_.forward(*s.step, s.previous);
  if (clock_ != nullptr) clock_->forward_ends(*s.step);
  if (status.ok() && s.step->masks.size() > 0) status = forward_end_->record(runner_.device().stream());
  return status;
}

void Rank::fail(Step& step, Status status) {
  failed_ = true;
  runner_.let_go();
  if (step.status.ok()) step.status = std::move(status);
}

void Rank::open(Step& step) {
  TERN_CHECK(opened_ - closed_ < open_.size());
  Open& o = open_[opened_++ % open_.size()];
  o.step = &step;
  o.recorded = step.status.ok();
  if (!o.recorded) return;
  if (Status s = o.end->record(runner_.device().stream()); !s.ok()) {
    o.recorded = false;
    fail(step, std::move(s));
  }
}

// Tells of steps that are done, in their order.
void Rank::report() {
  if (VisionStage* vision = runner_.parts().vision; vision != nullptr) vision->look();
  while (opened_ > closed_) {
    Open& oldest = open_[closed_ % open_.size()];
    if (oldest.recorded) {
      const bool others = runner_.done(*oldest.step);  // asked first: where one has failed, it lets this one go
      if (!others || !oldest.end->done()) return;
    }
    finish(oldest);
  }
}

void Rank::finish(Open& oldest) {
  if (oldest.recorded) {
    Status s = oldest.end->synchronize();  // passed: this only asks how it went
    if (s.ok()) s = runner_.device().status();
    if (s.ok()) s = runner_.finish(*oldest.step);
    if (!s.ok()) fail(*oldest.step, std::move(s));
  }
  if (clock_ != nullptr && oldest.recorded && !failed_) clock_->done(*oldest.step);
  ++closed_;
  if (runner_.parts().vision != nullptr) runner_.parts().vision->release(oldest.step->vision);
  done_(context_);
}

}  // namespace tern::engine
