#include "cache/prefix_names.h"

#include <bit>

#include "base/check.h"

namespace tern::cache {

void PrefixNames::begin(size_t most) {
  const std::lock_guard lock(mutex_);
  const size_t capacity = std::bit_ceil(2 * most + 2);
  places_.assign(capacity, Hash128{});
  mask_ = capacity - 1;
  count_ = 0;
}

size_t PrefixNames::find(const Hash128& hash) const {
  size_t at = home(hash);
  while (places_[at] != Hash128{} && places_[at] != hash) at = (at + 1) & mask_;
  return at;
}

void PrefixNames::add(const Hash128& hash) {
  const std::lock_guard lock(mutex_);
  const size_t at = find(hash);
  if (places_[at] == hash) return;
  TERN_CHECK_MSG(2 * (count_ + 1) <= places_.size(), "an index names at most a hash per block");
  places_[at] = hash;
  ++count_;
}

void PrefixNames::remove(const Hash128& hash) {
  const std::lock_guard lock(mutex_);
  size_t at = find(hash);
  if (places_[at] != hash) return;
  --count_;
  // Later entries of the run move back over the hole, so that probing needs no tombstones.
  for (size_t next = (at + 1) & mask_; places_[next] != Hash128{}; next = (next + 1) & mask_) {
    const size_t wish = home(places_[next]);
    if (((next - wish) & mask_) >= ((next - at) & mask_)) {
      places_[at] = places_[next];
      at = next;
    }
  }
  places_[at] = Hash128{};
}

int PrefixNames::peek(std::span<const Hash128> hashes) const {
  const std::lock_guard lock(mutex_);
  if (places_.empty()) return 0;
  int length = 0;
  while (static_cast<size_t>(length) < hashes.size()) {
    const Hash128& hash = hashes[static_cast<size_t>(length)];
    if (places_[find(hash)] != hash) break;
    ++length;
  }
  return length;
}

size_t PrefixNames::size() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

}  // namespace tern::cache
