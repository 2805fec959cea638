#include "engine/rank.h"

#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "ops/blocks.h"
#include "ops/embedding.h"

namespace tern::engine {

Rank::Rank(Parts parts, void (*done)(void*), void* context)
    : parts_(std::move(parts)), done_(done), context_(context), thread_([this] { run(); }) {}

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

uint64_t Rank::finished() const {
  std::lock_guard lock(mutex_);
  return finished_;
}

void Rank::run() {
  set_thread_name("rank-0");
  for (;;) {
    Submission s;
    {
      std::unique_lock lock(mutex_);
      submitted_.wait(lock, [&] { return count_ > 0 || stopping_; });
      if (count_ == 0) return;
      s = queue_[head_];
      head_ = (head_ + 1) % kDepth;
      --count_;
    }
    // After a failure the device's state is unknown: nothing further runs, every step reports an error.
    Status status = failed_ ? Status(make_error(ErrorCode::kUnavailable, "an earlier step failed")) : run(s);
    if (!status.ok()) {
      failed_ = true;
      if (s.step->status.ok()) s.step->status = std::move(status);
    }
    if (s.kind != Kind::kSample) continue;
    {
      std::lock_guard lock(mutex_);
      ++finished_;
    }
    done_(context_);
  }
}

Status Rank::run(const Submission& s) {
  switch (s.kind) {
    case Kind::kVision:
      return parts_.vision->run(s.step->vision, *parts_.device, parts_.device->stream());
    case Kind::kForward:
      return forward(*s.step, s.previous);
    case Kind::kSample:
      break;
  }
  return sample(*s.step);
}

Status Rank::forward(Step& step, const Step* previous) {
  device::Device& device = *parts_.device;
  const device::Stream stream = device.stream();
  step.upload(device, stream);
  for (const sched::BlockMove& move : step.plan.moves) {
    for (const model::KvCache::Group& g : parts_.cache->groups) {
      TERN_RETURN_IF_ERROR(ops::copy_block({g.base, g.spec.block_bytes(), move.from, move.to}, stream));
    }
  }
  if (previous != nullptr) {
    TERN_RETURN_IF_ERROR(
        ops::resolve_ids({step.batch.token_ids, step.batch.token_source, previous->sampling.device_ids()}, stream));
  }
  device::Arena arena(parts_.workspace.data(), parts_.workspace.bytes());
  const model::ForwardContext context{step.batch, *parts_.cache, stream, arena, nullptr};
  return parts_.model->forward(context, parts_.logits.first(step.batch.logit_rows));
}

Status Rank::sample(Step& step) {
  device::Device& device = *parts_.device;
  const device::Stream stream = device.stream();
  TERN_RETURN_IF_ERROR(parts_.sampler->run(step.sampling, parts_.logits.first(step.batch.logit_rows), device, stream));
  return device.synchronize(stream);
}

}  // namespace tern::engine
