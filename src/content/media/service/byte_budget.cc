#include "content/media/service/byte_budget.h"

#include <utility>

#include "base/check.h"

namespace tern::content {

namespace {

void subtract(std::unordered_map<uint64_t, size_t>* used_by, uint64_t owner, size_t bytes) {
  const auto found = used_by->find(owner);
  TERN_CHECK(found != used_by->end() && bytes <= found->second);
  found->second -= bytes;
  if (found->second == 0) used_by->erase(found);
}

}  // namespace

void ByteBudget::acquire(size_t bytes, uint64_t owner, UniqueFunction<bool()> abandoned,
                         UniqueFunction<void(bool)> go) {
  TERN_CHECK(bytes <= total_);
  {
    const std::lock_guard lock(mutex_);
    waiters_.push_back({bytes, owner, std::move(abandoned), std::move(go)});
  }
  pump();
}

void ByteBudget::release(size_t bytes, uint64_t owner) {
  if (bytes == 0) return;
  if (owner != kNobody) {
    const std::lock_guard lock(mutex_);
    subtract(&used_by_, owner, bytes);
  }
  if (give_back(bytes)) pump();
}

bool ByteBudget::beyond_share(const Waiter& waiter) const {
  if (waiter.owner == kNobody) return false;
  const auto held = used_by_.find(waiter.owner);
  return held != used_by_.end() && (held->second > share_ || waiter.bytes > share_ - held->second);
}

bool ByteBudget::give_back(size_t bytes) {
  const std::lock_guard lock(mutex_);
  TERN_CHECK(bytes <= used_);
  used_ -= bytes;
  return !waiters_.empty();
}

// The next waiter to be called. False with the front's shortage when none can be.
bool ByteBudget::next(Waiter* waiter, bool* taken, size_t* shortage) {
  const std::lock_guard lock(mutex_);
  *shortage = 0;
  bool first = true;
  for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
    const bool given_up = it->abandoned && it->abandoned();
    if (!given_up && beyond_share(*it)) continue;
    const bool front = std::exchange(first, false);
    if (!given_up && it->bytes > total_ - used_) {
      if (front) *shortage = it->bytes - (total_ - used_);
      continue;
    }
    if (!given_up && !front && passes_ >= kMostPasses) continue;
    if (front) {
      passes_ = 0;
    } else if (!given_up) {
      passes_++;
    }
    *taken = !given_up;
    if (!given_up) used_ += it->bytes;
    if (!given_up && it->owner != kNobody && it->bytes > 0) used_by_[it->owner] += it->bytes;
    *waiter = std::move(*it);
    waiters_.erase(it);
    return true;
  }
  return false;
}

void ByteBudget::pump() {
  Waiter waiter;
  bool taken = false;
  size_t shortage = 0;
  while (true) {
    while (next(&waiter, &taken, &shortage)) waiter.go(taken);
    // Who comes while another thread reclaims is looked at by that thread afterwards.
    if (shortage == 0 || !reclaim_ || reclaiming_.exchange(true)) return;
    const size_t before = in_use();
    reclaim_(shortage);
    const bool freed = in_use() < before;
    reclaiming_ = false;
    if (!freed && !next(&waiter, &taken, &shortage)) return;
    if (!freed) waiter.go(taken);
  }
}

size_t ByteBudget::in_use() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

bool ByteCounter::take(size_t bytes, uint64_t owner) {
  const std::lock_guard lock(mutex_);
  if (bytes > total_ - used_) return false;
  if (owner != 0 && bytes > 0) {
    const auto held = used_by_.find(owner);
    const size_t before = held == used_by_.end() ? 0 : held->second;
    if (before > share_ || bytes > share_ - before) return false;
    used_by_[owner] = before + bytes;
  }
  used_ += bytes;
  return true;
}

void ByteCounter::give(size_t bytes, uint64_t owner) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  TERN_CHECK(bytes <= used_);
  used_ -= bytes;
  if (owner != 0) subtract(&used_by_, owner, bytes);
}

size_t ByteCounter::in_use() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t ByteBudget::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiters_.size();
}

}  // namespace tern::content
