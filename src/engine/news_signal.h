// Says to the one reader of several outboxes that one of them has news.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tern::engine {

class NewsSignal {
 public:
  // Any thread.
  void give() {
    {
      const std::lock_guard lock(mutex_);
      ++count_;
    }
    given_.notify_one();
  }
  // The reader: count() before it looks, then wait() where it has found nothing. False when none came in time.
  uint64_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  bool wait(uint64_t seen, std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    return given_.wait_until(lock, until, [&] { return count_ != seen; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable given_;
  uint64_t count_ = 0;
};

}  // namespace tern::engine
