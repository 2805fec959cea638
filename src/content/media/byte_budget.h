// Memory of media preparation: who wants bytes waits for them without a thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>

namespace tern::content {

// A request takes all that it needs at once and never waits while it holds bytes of the same budget, so that nobody
// waits for ever. Order of arrival; what fits may pass a larger one that does not, a limited number of times.
class ByteBudget {
 public:
  explicit ByteBudget(size_t total) : total_(total) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // Asked to free bytes that are kept without need; called without a lock held. Set before first use.
  void set_reclaim(std::function<void(size_t shortage)> reclaim) { reclaim_ = std::move(reclaim); }

  // Calls go(true) when the bytes (at most total()) are taken: now, or from a later release() of another thread. Where
  // `abandoned` says so by then, go(false) is called and nothing is taken.
  void acquire(size_t bytes, std::function<bool()> abandoned, std::function<void(bool)> go);
  void release(size_t bytes);
  // The same without calling anybody: true when somebody waits, and poke() must be called from a suitable thread.
  bool give_back(size_t bytes);
  // Looks again at those who wait: someone has given up.
  void poke() { pump(); }

  size_t total() const { return total_; }
  size_t in_use() const;
  size_t waiting() const;

 private:
  static constexpr int kMostPasses = 64;  // of the waiter in front
  struct Waiter {
    size_t bytes;
    std::function<bool()> abandoned;
    std::function<void(bool)> go;
  };
  void pump();
  bool next(Waiter* waiter, bool* taken, size_t* shortage);

  const size_t total_;
  std::function<void(size_t)> reclaim_;
  std::atomic<bool> reclaiming_{false};
  mutable std::mutex mutex_;
  size_t used_ = 0;
  int passes_ = 0;
  std::list<Waiter> waiters_;
};

}  // namespace tern::content
