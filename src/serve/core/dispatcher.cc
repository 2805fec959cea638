#include "serve/core/dispatcher.h"

#include <algorithm>
#include <chrono>

#include "base/thread_pool.h"

namespace tern::serve {

using namespace std::chrono_literals;

void Dispatcher::start(std::function<void()> on_gone) {
  thread_ = std::thread([this, on_gone = std::move(on_gone)] {
    set_thread_name("tern-dispatch");
    run(on_gone);
  });
}

void Dispatcher::stop() {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
}

int Dispatcher::add(Sink& sink) {
  std::lock_guard lock(mutex_);
  for (int i = 0; i < kMaxSinks; ++i) {
    Entry& entry = sinks_[static_cast<size_t>(i)];
    if (entry.sink != nullptr) continue;
    entry.sink = &sink;
    used_ = std::max(used_, i + 1);
    return i;
  }
  return -1;
}

void Dispatcher::remove(int sink) {
  std::lock_guard lock(mutex_);
  sinks_[static_cast<size_t>(sink)] = {};
}

void Dispatcher::run(const std::function<void()>& on_gone) {
  std::vector<engine::Delta> news;
  while (!stop_.load(std::memory_order_acquire)) {
    const size_t waiting = offer();
    if (waiting > kMaxWaiting) {
      std::this_thread::sleep_for(1ms);
      continue;
    }
    news.clear();
    const bool alive = engine_.poll(news, waiting > 0 ? 1ms : 50ms);
    if (!news.empty()) sort(news);
    if (alive) continue;
    on_gone();
    while (offer() > 0 && !stop_.load(std::memory_order_acquire)) std::this_thread::sleep_for(1ms);
    return tell_gone();
  }
}

void Dispatcher::sort(std::vector<engine::Delta>& news) {
  std::lock_guard lock(mutex_);
  if (used_ == 1 && sinks_[0].sink != nullptr && sinks_[0].waiting.empty()) return sinks_[0].waiting.swap(news);
  for (engine::Delta& delta : news) {
    Entry& entry = sinks_[delta.id & 0xff];
    if (entry.sink != nullptr) entry.waiting.push_back(std::move(delta));
  }
}

size_t Dispatcher::offer() {
  std::lock_guard lock(mutex_);
  size_t waiting = 0;
  for (int i = 0; i < used_; ++i) {
    Entry& entry = sinks_[static_cast<size_t>(i)];
    if (entry.waiting.empty()) continue;
    if (entry.sink->take(entry.waiting))
      entry.waiting.clear();
    else
      waiting += entry.waiting.size();
  }
  return waiting;
}

void Dispatcher::tell_gone() {
  std::lock_guard lock(mutex_);
  for (int i = 0; i < used_; ++i) {
    if (Sink* sink = sinks_[static_cast<size_t>(i)].sink) sink->engine_gone();
  }
}

}  // namespace tern::serve
