#include "serve/limits/memory_budget.h"

namespace tern::serve {

bool MemoryBudget::Lease::resize(size_t bytes) {
  if (budget_ == nullptr || !budget_->change(owner_, bytes_, bytes)) return budget_ == nullptr;
  bytes_ = bytes;
  return true;
}

bool MemoryBudget::change(uint64_t owner, size_t from, size_t to) {
  std::lock_guard lock(mutex_);
  const size_t others = used_ - from;
  const auto place = owner == 0 ? owners_.end() : owners_.try_emplace(owner, 0).first;
  const size_t owned = place == owners_.end() ? 0 : place->second - from;
  bool fits = true;
  if (to > from) {
    const size_t open = to <= kSmall ? limit_ : limit_ - limit_ / 8;
    fits = to <= open && others <= open - to && (owner == 0 || (to <= limit_ / 2 && owned <= limit_ / 2 - to));
  }
  const size_t now = fits ? to : from;
  used_ = others + now;
  if (place != owners_.end()) {
    place->second = owned + now;
    if (place->second == 0) owners_.erase(place);
  }
  return fits;
}

size_t MemoryBudget::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace tern::serve
