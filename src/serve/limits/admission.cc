#include "serve/limits/admission.h"

namespace tern::serve {

Ticket Ticket::take(std::atomic<int>& count, int limit) {
  Ticket ticket;
  int now = count.load(std::memory_order_relaxed);
  while (now < limit) {
    if (count.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
      ticket.count_ = &count;
      break;
    }
  }
  return ticket;
}

bool Ticket::also(std::atomic<int>& count, int limit) {
  Ticket ticket = take(count, limit);
  second_ = std::exchange(ticket.count_, nullptr);
  return second_ != nullptr;
}

void Ticket::release() {
  if (second_ != nullptr) second_->fetch_sub(1, std::memory_order_acq_rel);
  second_ = nullptr;
  if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_acq_rel);
  count_ = nullptr;
}

AddressCounts::Lease AddressCounts::enter(uint64_t owner, size_t limit) {
  Lease lease;
  std::lock_guard lock(mutex_);
  size_t& count = counts_[owner];
  if (count >= limit) return lease;
  ++count;
  lease.counts_ = this;
  lease.owner_ = owner;
  return lease;
}

void AddressCounts::leave(uint64_t owner) {
  std::lock_guard lock(mutex_);
  const auto it = counts_.find(owner);
  if (--it->second == 0) counts_.erase(it);
}

bool ActiveIds::insert(const std::string& id) {
  std::lock_guard lock(mutex_);
  return ids_.insert(id).second;
}

void ActiveIds::erase(const std::string& id) {
  std::lock_guard lock(mutex_);
  ids_.erase(id);
}

}  // namespace tern::serve
