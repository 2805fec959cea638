#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/loop/engine_impl.h"

namespace tern::engine {
namespace {

// How often a wait for a step asks for what comes after it: caches lose that within a long step, to other programs too,
// and planning would wait for memory.
constexpr int64_t kPrefetchNs = 500'000;

}  // namespace

EngineImpl::EngineImpl(EngineParts parts, StepRunner runner)
    : parts_(std::move(parts)), outbox_(parts_.config.outbox_capacity) {
  const auto rows = static_cast<size_t>(parts_.config.scheduler.max_num_seqs);
  results_.reserve(rows), result_tokens_.reserve(rows * (parts_.config.mask_threads > 0 ? 1 + Guide::kMostForced : 1)),
      finished_.reserve(rows);
  news_.reserve(std::max(2 * rows, outbox_.expected()));
  slot_owners_.resize(rows);
  const sched::SchedulerConfig& s = parts_.config.scheduler;
  // Whoever runs holds at most its full length, and at most max_num_seqs hold anything.
  may_preempt_ = !s.v1 || parts_.blocks.total / s.max_num_seqs < ceil_div(s.max_model_len, s.block_size);
  stats_.max_num_seqs = parts_.config.scheduler.max_num_seqs;
  stats_.total_blocks = stats_.free_blocks = stats_.usable_blocks = parts_.blocks.total;
  outbox_.on_drained([](void* self) { static_cast<EngineImpl*>(self)->event(); }, this);
  // Work that is done when it has been given may take its time.
  if (parts_.device->own_memory()) watchdog_ns_ = std::max<int64_t>(parts_.config.watchdog_ns, 0);
  rank_ = std::make_unique<Rank>(
      std::move(runner), Rank::Faults{parts_.config.fault, parts_.config.fault_step},
      [](void* self) {
        auto* engine = static_cast<EngineImpl*>(self);
        {
          std::lock_guard lock(engine->mutex_);
          ++engine->steps_done_, ++engine->events_;
        }
        engine->wake_.notify_one();
      },
      this);
  if (parts_.config.mask_threads > 0) {
    const auto words = static_cast<size_t>((parts_.sampled_vocab + 31) / 32);
    guidance_ = std::make_unique<Guidance>(parts_.config.mask_threads, words);
  }
  allocations_ = parts_.device->allocations();
  thread_ = std::thread([this] { run(); });
}

EngineImpl::~EngineImpl() {
  shutdown(true);
  thread_.join();
}

void EngineImpl::event() {
  {
    std::lock_guard lock(mutex_);
    ++events_;
  }
  wake_.notify_one();
}

Status EngineImpl::submit(Request request) {
  {
    std::lock_guard lock(mutex_);
    if (!healthy_) return make_error(ErrorCode::kUnavailable, "the engine has failed and takes no requests");
    if (stopping_) return make_error(ErrorCode::kUnavailable, "the engine is shutting down");
    const auto running = static_cast<size_t>(parts_.config.scheduler.max_num_seqs);
    if (inbox_.size() + open_ >= parts_.config.inbox_capacity + running) {
      return make_error(ErrorCode::kResourceExhausted, "too many requests are waiting for the engine");
    }
    inbox_.push_back(std::move(request));
    ++events_;
  }
  wake_.notify_one();
  return {};
}

void EngineImpl::abort(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    aborts_.push_back(id);
    ++events_;
  }
  wake_.notify_one();
}

void EngineImpl::shutdown(bool now) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    ending_ = ending_ || now;
    ++events_;
  }
  wake_.notify_one();
}

EngineStats EngineImpl::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats s = stats_;
  s.waiting += static_cast<int>(inbox_.size());
  s.healthy = healthy_;
  return s;
}

bool EngineImpl::healthy() const {
  std::lock_guard lock(mutex_);
  return healthy_;
}

void EngineImpl::take_commands() {
  {
    std::lock_guard lock(mutex_);
    seen_events_ = events_;
    open_ += inbox_.size();
    taken_requests_.swap(inbox_);
    taken_aborts_.swap(aborts_);
    seen_done_ = steps_done_;
    seen_stopping_ = stopping_, seen_ending_ = ending_;
  }
  for (Request& r : taken_requests_) enter(std::move(r));
  taken_requests_.clear();
  for (RequestId id : taken_aborts_) abort_one(id);
  taken_aborts_.clear();
  if (seen_ending_) end_all(FinishReason::kAbort, {});
  if (next_deadline_ != 0) expire(monotonic_ns());
}

void EngineImpl::wait_for_event() {
  const bool watching = watchdog_ns_ > 0 && !dead_ && launched_ > collected_;
  int64_t until = next_deadline_;  // 0: none
  if (watching && (until == 0 || oldest_since_ + watchdog_ns_ < until)) until = oldest_since_ + watchdog_ns_;
  const bool prefetching = parts_.device->own_memory() && !dead_ && launched_ > collected_;
  std::unique_lock lock(mutex_);
  const auto changed = [&] { return events_ != seen_events_; };
  while (prefetching && (until == 0 || monotonic_ns() + kPrefetchNs < until)) {
    if (wake_.wait_for(lock, std::chrono::nanoseconds(kPrefetchNs), changed)) return;
    lock.unlock();
    prefetch_ahead();
    lock.lock();
  }
  if (until == 0) {
    wake_.wait(lock, changed);
  } else if (const int64_t left = until - monotonic_ns(); left > 0) {
    wake_.wait_for(lock, std::chrono::nanoseconds(left), changed);
  }
}

// Most of what collecting the oldest step and planning the next one touch; sequences are not among it.
void EngineImpl::prefetch_ahead() const {
  parts_.steps[launched_ % 2]->prefetch();
  for (const StepRow& row : parts_.steps[collected_ % 2]->rows) engine::prefetch(*row.generation, 3);
}

// The device's state is unknown from here on: no further step, and an error for everyone.
void EngineImpl::die(const std::string& why) {
  dead_ = true;
  TERN_ERROR("{}", why);
  end_all(FinishReason::kError, make_error(ErrorCode::kInternal, fmt::format("the engine failed: {}", why)));
}

// The oldest open step must end in time. Nothing of it or of the one after it is touched afterwards: the device may
// still be at them.
void EngineImpl::watch(int64_t now) {
  if (watchdog_ns_ == 0 || dead_ || launched_ == collected_ || seen_done_ > collected_) return;
  if (now - oldest_since_ < watchdog_ns_) return;
  hung_ = true;
  rank_->abandon();
  die(fmt::format("step {} has not ended after {:.1f} s: the device hangs", parts_.steps[collected_ % 2]->plan.step,
                  static_cast<double>(watchdog_ns_) / 1e9));
}

void EngineImpl::publish() {
  publish_stats();
  outbox_.publish(news_);  // after the figures: who reads of an end finds it counted
}

void EngineImpl::publish_stats() {
  const sched::SchedulerStats s = parts_.scheduler->stats();
  std::lock_guard lock(mutex_);
  healthy_ = !dead_;
  open_ = generations_.size();
  stats_.running = s.running, stats_.waiting = s.waiting, stats_.preempted_waiting = s.preempted_waiting;
  stats_.free_blocks = s.free_blocks, stats_.usable_blocks = s.usable_blocks;
  stats_.steps = collected_, stats_.graph_steps = replayed_;
  stats_.prompt_tokens = prompt_tokens_, stats_.generated_tokens = generated_tokens_;
  stats_.preemptions = s.preemptions;
  stats_.late_allocations = parts_.device->allocations() - allocations_;
  stats_.prefix_lookup_tokens = s.prefix_lookup_tokens, stats_.prefix_hit_tokens = s.prefix_hit_tokens;
  stats_.tower_ns = media_stats_.tower_ns, stats_.tower_calls = media_stats_.tower_calls;
  stats_.tower_items = media_stats_.tower_items, stats_.tower_patches = media_stats_.tower_patches;
  stats_.encoder_lookups = media_stats_.encoder_lookups, stats_.encoder_hits = media_stats_.encoder_hits;
  stats_.prefix_lookups = s.prefix_lookups, stats_.prefix_hits = s.prefix_hits;
}

void EngineImpl::run() {
  set_thread_name("engine");
  for (;;) {
    take_commands();
    while (launch()) {
    }
    watch(monotonic_ns());
    if (seen_done_ > collected_ && !hung_) {
      collect();
      publish();
      continue;
    }
    publish();
    if (seen_stopping_ && idle()) break;
    wait_for_event();
  }
  outbox_.close();
}

}  // namespace tern::engine
