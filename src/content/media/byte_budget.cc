#include "content/media/byte_budget.h"

#include <utility>

#include "base/check.h"

namespace tern::content {

void ByteBudget::acquire(size_t bytes, std::function<bool()> abandoned, std::function<void(bool)> go) {
  TERN_CHECK(bytes <= total_);
  {
    const std::lock_guard lock(mutex_);
    waiters_.push_back({bytes, std::move(abandoned), std::move(go)});
  }
  pump();
}

void ByteBudget::release(size_t bytes) {
  if (bytes > 0 && give_back(bytes)) pump();
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
  for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
    const bool front = it == waiters_.begin(), given_up = it->abandoned && it->abandoned();
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

size_t ByteBudget::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiters_.size();
}

}  // namespace tern::content
