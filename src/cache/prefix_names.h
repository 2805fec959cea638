// The hashes that a prefix index names, for threads that do not own the index: which of several caches holds most of a
// prompt is asked before anybody owns the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/hash.h"

namespace tern::cache {

// Memory is fixed by begin(); every call costs a lock and O(hashes it is given).
class PrefixNames {
 public:
  PrefixNames() = default;
  PrefixNames(const PrefixNames&) = delete;
  PrefixNames& operator=(const PrefixNames&) = delete;

  // The index, on the thread that owns it. Forgets everything and makes room for `most` hashes.
  void begin(size_t most);
  void add(const Hash128& hash);
  void remove(const Hash128& hash);

  // Any thread: as PrefixIndex::peek, as of now.
  int peek(std::span<const Hash128> hashes) const;
  size_t size() const;

 private:
  size_t home(const Hash128& hash) const { return static_cast<size_t>(hash.lo) & mask_; }
  size_t find(const Hash128& hash) const;  // its place, or the free one it would take

  mutable std::mutex mutex_;
  std::vector<Hash128> places_;  // open addressing, linear probing; a default Hash128: free
  size_t mask_ = 0, count_ = 0;
};

}  // namespace tern::cache
