// Memory of media preparation: who wants bytes waits for them without a thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/task.h"

namespace tern::content {

// A request takes all that it needs at once and never waits while it holds bytes of the same budget, so that none
// waits for ever. Order of arrival; what fits may pass a larger one that does not, a limited number of times.
class ByteBudget {
 public:
  explicit ByteBudget(size_t total) : total_(total) {}
  // share: what one owner may hold beside what others want. Who holds nothing may have any request.
  ByteBudget(size_t total, size_t share) : total_(total), share_(share) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // Asked to free bytes that are kept without need; called without a lock held. Set before first use.
  void set_reclaim(std::function<void(size_t shortage)> reclaim) { reclaim_ = std::move(reclaim); }

  // Calls go(true) when the bytes (at most total()) are taken: now, or from a later release() of another thread. Where
  // `abandoned` says so by then, go(false) is called and nothing is taken.
  void acquire(size_t bytes, UniqueFunction<bool()> abandoned, UniqueFunction<void(bool)> go) {
    acquire(bytes, kNobody, std::move(abandoned), std::move(go));
  }
  // Others pass an owner that waits for its own share.
  void acquire(size_t bytes, uint64_t owner, UniqueFunction<bool()> abandoned, UniqueFunction<void(bool)> go);
  void release(size_t bytes, uint64_t owner = kNobody);
  // The same without calling `go`: true when a request waits, and poke() must be called from a suitable thread.
  bool give_back(size_t bytes);
  // Looks again at those who wait: someone has given up.
  void poke() { pump(); }

  size_t total() const { return total_; }
  size_t in_use() const;
  size_t waiting() const;

 private:
  static constexpr int kMostPasses = 64;  // of the waiter in front
  static constexpr uint64_t kNobody = 0;  // has no share
  struct Waiter {
    size_t bytes;
    uint64_t owner;
    UniqueFunction<bool()> abandoned;
    UniqueFunction<void(bool)> go;
  };
  void pump();
  bool next(Waiter* waiter, bool* taken, size_t* shortage);
  bool beyond_share(const Waiter& waiter) const;

  const size_t total_, share_ = total_;
  std::function<void(size_t)> reclaim_;
  std::atomic<bool> reclaiming_{false};
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::unordered_map<uint64_t, size_t> used_by_;  // owners; none is 0
  int passes_ = 0;
  std::list<Waiter> waiters_;
};

// Memory that grows while a file comes. Nobody waits for it: who comes when it is used up is refused.
class ByteCounter {
 public:
  // share: of one owner; owner 0 has no share of its own.
  ByteCounter(size_t total, size_t share) : total_(total), share_(share) {}
  bool take(size_t bytes, uint64_t owner);  // false: nothing is taken
  void give(size_t bytes, uint64_t owner);
  size_t in_use() const;

 private:
  const size_t total_, share_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::unordered_map<uint64_t, size_t> used_by_;  // owners; none is 0
};

}  // namespace tern::content
