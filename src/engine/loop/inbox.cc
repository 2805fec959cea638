#include "engine/loop/inbox.h"

#include <chrono>
#include <utility>

namespace tern::engine {

Status Inbox::submit(Request request) {
  {
    std::lock_guard lock(mutex_);
    if (!healthy_) return make_error(ErrorCode::kUnavailable, "the engine has failed and takes no requests");
    if (stopping_) return make_error(ErrorCode::kUnavailable, "the engine is shutting down");
    if (requests_.size() + open_ >= capacity_) {
      return make_error(ErrorCode::kResourceExhausted, "too many requests are waiting for the engine");
    }
    prompt_tokens_ += static_cast<int64_t>(request.prompt.size());
    requests_.push_back(std::move(request));
    ++events_;
  }
  wake_.notify_one();
  return {};
}

void Inbox::abort(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    aborts_.push_back(id);
    ++events_;
  }
  wake_.notify_one();
}

std::future<Status> Inbox::order(ControlOrder order) {
  Order o{std::move(order), 0, {}};
  std::future<Status> done = o.done.get_future();
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      o.done.set_value(make_error(ErrorCode::kUnavailable, "the engine has ended"));
      return done;
    }
    o.behind = requests_.size();
    orders_.push_back(std::move(o));
    ++events_;
  }
  wake_.notify_one();
  return done;
}

void Inbox::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (Order& o : orders_) o.done.set_value(make_error(ErrorCode::kUnavailable, "the engine has ended"));
  orders_.clear();
}

void Inbox::shutdown(bool now) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    ending_ = ending_ || now;
    ++events_;
  }
  wake_.notify_one();
}

void Inbox::step_done() {
  {
    std::lock_guard lock(mutex_);
    ++steps_done_, ++events_;
  }
  wake_.notify_one();
}

void Inbox::wake() {
  {
    std::lock_guard lock(mutex_);
    ++events_;
  }
  wake_.notify_one();
}

EngineStats Inbox::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats s = stats_;
  s.waiting += static_cast<int>(requests_.size());
  s.open_tokens += prompt_tokens_;
  s.healthy = healthy_;
  return s;
}

bool Inbox::healthy() const {
  std::lock_guard lock(mutex_);
  return healthy_;
}

void Inbox::take(Commands& taken) {
  std::lock_guard lock(mutex_);
  seen_events_ = events_;
  open_ += requests_.size();
  // Until the engine says where they stand.
  stats_.waiting += static_cast<int>(requests_.size());
  stats_.open_tokens += std::exchange(prompt_tokens_, 0);
  taken.requests.swap(requests_);
  taken.aborts.swap(aborts_);
  taken.orders.swap(orders_);
  taken.steps_done = steps_done_;
  taken.stopping = stopping_, taken.ending = ending_;
}

bool Inbox::wait_for(int64_t ns) {
  std::unique_lock lock(mutex_);
  return wake_.wait_for(lock, std::chrono::nanoseconds(ns), [this] { return changed(); });
}

void Inbox::wait() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return changed(); });
}

void Inbox::publish(const EngineStats& stats, size_t open, bool healthy) {
  std::lock_guard lock(mutex_);
  stats_ = stats, open_ = open, healthy_ = healthy;
}

}  // namespace tern::engine
