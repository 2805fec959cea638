#include "serve/limits/engine_slots.h"

#include <algorithm>
#include <utility>

namespace tern::serve {

bool EngineSlots::acquire(const Waiter& waiter) {
  std::lock_guard lock(mutex_);
  Owner& owner = owners_[waiter.owner];
  if (taken_ < limit_) {
    ++taken_;
    owner.samples += waiter.weight;
    return true;
  }
  owner.queue.push_back({waiter, arrivals_++});
  ++waiting_;
  return false;
}

std::optional<EngineSlots::Waiter> EngineSlots::release(const Waiter& who) {
  std::lock_guard lock(mutex_);
  const auto left = owners_.find(who.owner);
  left->second.samples -= who.weight;
  if (left->second.samples == 0 && left->second.queue.empty()) owners_.erase(left);
  Owner* next = nullptr;
  for (auto& [key, owner] : owners_) {
    if (owner.queue.empty()) continue;
    if (next == nullptr ||
        std::pair(owner.samples, owner.queue.front().arrival) < std::pair(next->samples, next->queue.front().arrival)) {
      next = &owner;
    }
  }
  if (next == nullptr) {
    --taken_;
    return std::nullopt;
  }
  const Waiter waiter = next->queue.front().waiter;
  next->queue.pop_front();
  next->samples += waiter.weight;
  --waiting_;
  return waiter;
}

bool EngineSlots::cancel(const Waiter& waiter) {
  std::lock_guard lock(mutex_);
  const auto owner = owners_.find(waiter.owner);
  if (owner == owners_.end()) return false;
  auto& queue = owner->second.queue;
  const auto it = std::find_if(queue.begin(), queue.end(), [&](const Entry& e) {
    return e.waiter.worker == waiter.worker && e.waiter.key == waiter.key;
  });
  if (it == queue.end()) return false;
  queue.erase(it);
  --waiting_;
  if (queue.empty() && owner->second.samples == 0) owners_.erase(owner);
  return true;
}

int EngineSlots::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace tern::serve
