// Prepared media by key (--max-processor-cache): the least recently used leave first.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "content/media/media.h"

namespace tern::content {

// Keys are keyed hashes (of a file, of decoded pixels, of an owner's uuid), so that clients cannot aim at entries of
// others. Safe for any thread.
class ProcessorCache {
 public:
  explicit ProcessorCache(size_t capacity) : capacity_(capacity) {}
  ProcessorCache(const ProcessorCache&) = delete;
  ProcessorCache& operator=(const ProcessorCache&) = delete;

  bool enabled() const { return capacity_ > 0; }
  PreparedMediaPtr find(const Hash128& key);
  // Makes the key lead to the entry from now on. What is larger than the whole cache is not kept.
  void insert(const Hash128& key, const PreparedMediaPtr& media);
  // Drops unused entries until `bytes` of patches are freed.
  void evict_unused(size_t bytes);

  size_t bytes() const;
  size_t items() const;

 private:
  struct Entry {
    PreparedMediaPtr media;
    size_t bytes;
    std::vector<Hash128> keys;  // the oldest first
  };
  using Entries = std::list<Entry>;  // the most recently used first
  static constexpr size_t kMostKeys = 32;
  static constexpr size_t kKeyBytes = 96, kEntryBytes = 512;  // what bookkeeping takes, about

  // The caller frees what was removed after the lock: freeing patches wakes others.
  PreparedMediaPtr remove(Entries::iterator entry);
  void forget_key(const Hash128& key);

  const size_t capacity_;
  mutable std::mutex mutex_;
  size_t bytes_ = 0;
  Entries entries_;
  std::unordered_map<Hash128, Entries::iterator> by_key_;
  std::unordered_map<const PreparedMedia*, Entries::iterator> by_media_;
};

}  // namespace tern::content
