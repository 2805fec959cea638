#include "content/media/service/processor_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tern::content {

PreparedMediaPtr ProcessorCache::find(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->media;
}

void ProcessorCache::forget_key(const Hash128& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  auto& keys = found->second->keys;
  keys.erase(std::remove(keys.begin(), keys.end(), key), keys.end());
  found->second->bytes -= kKeyBytes;
  bytes_ -= kKeyBytes;
  by_key_.erase(found);
}

PreparedMediaPtr ProcessorCache::remove(Entries::iterator entry) {
  for (const Hash128& key : entry->keys) by_key_.erase(key);
  by_media_.erase(entry->media.get());
  bytes_ -= entry->bytes;
  PreparedMediaPtr media = std::move(entry->media);
  entries_.erase(entry);
  return media;
}

void ProcessorCache::insert(const Hash128& key, const PreparedMediaPtr& media) {
  std::vector<PreparedMediaPtr> removed;
  const std::lock_guard lock(mutex_);
  const auto old = by_key_.find(key);
  if (old != by_key_.end() && old->second->media == media) return;
  forget_key(key);
  auto known = by_media_.find(media.get());
  if (known == by_media_.end()) {
    const size_t bytes = media->bytes + media->units.size() * sizeof(MediaUnit) + kEntryBytes;
    if (bytes + kKeyBytes > capacity_) return;
    entries_.push_front({media, bytes, {}});
    known = by_media_.emplace(media.get(), entries_.begin()).first;
    bytes_ += bytes;
  }
  const Entries::iterator entry = known->second;
  entries_.splice(entries_.begin(), entries_, entry);
  if (entry->keys.size() >= kMostKeys) {
    const Hash128 oldest = entry->keys.front();
    forget_key(oldest);
  }
  entry->keys.push_back(key);
  by_key_[key] = entry;
  entry->bytes += kKeyBytes;
  bytes_ += kKeyBytes;
  while (bytes_ > capacity_ && entries_.size() > 1) removed.push_back(remove(std::prev(entries_.end())));
}

void ProcessorCache::evict_unused(size_t bytes) {
  std::vector<PreparedMediaPtr> removed;
  const std::lock_guard lock(mutex_);
  size_t freed = 0;
  for (auto it = entries_.end(); it != entries_.begin() && freed < bytes;) {
    --it;
    if (it->media.use_count() > 1 || it->media->patches.use_count() > 1) continue;
    freed += it->media->bytes;
    const auto next = std::next(it);
    removed.push_back(remove(it));
    it = next;
  }
}

size_t ProcessorCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

size_t ProcessorCache::items() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tern::content
