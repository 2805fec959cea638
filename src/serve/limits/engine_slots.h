#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace tern::serve {

// Places for requests inside the engine, fairly over owners: the next place goes to the owner whose samples hold the
// fewest, and among its requests to the oldest.
class EngineSlots {
 public:
  struct Waiter {
    int worker = 0;
    uint64_t key = 0;    // a worker's own
    uint64_t owner = 0;  // opaque
    int64_t weight = 1;  // samples
  };
  explicit EngineSlots(int limit) : limit_(limit) {}
  // True: the place is taken. False: queued; the place will be handed over by another request's release().
  bool acquire(const Waiter& waiter);
  // Gives the place of `who` back; it goes straight to the waiter returned, if there is one, who must be told.
  std::optional<Waiter> release(const Waiter& who);
  // Leaves the queue. False when the place was already handed over: then it must be released.
  bool cancel(const Waiter& waiter);
  int waiting() const;

 private:
  struct Entry {
    Waiter waiter;
    uint64_t arrival = 0;
  };
  struct Owner {
    std::deque<Entry> queue;
    int64_t samples = 0;  // of its requests inside
  };

  mutable std::mutex mutex_;
  const int limit_;
  int taken_ = 0, waiting_ = 0;
  uint64_t arrivals_ = 0;
  std::unordered_map<uint64_t, Owner> owners_;
};

}  // namespace tern::serve
