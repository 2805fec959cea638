#include "cache/encoder_cache.h"

#include "base/check.h"

namespace tern::cache {

EncoderCache::EncoderCache(int rows) : capacity_(rows) {
  TERN_CHECK(rows >= 0);
  free_.reserve(static_cast<size_t>(rows));
  for (int i = rows; i-- > 0;) free_.push_back(i);  // low rows first
}

void EncoderCache::link(int entry) {
  Entry& e = entries_[static_cast<size_t>(entry)];
  e.before = youngest_, e.after = -1;
  (youngest_ >= 0 ? entries_[static_cast<size_t>(youngest_)].after : oldest_) = entry;
  youngest_ = entry;
}

void EncoderCache::unlink(int entry) {
  Entry& e = entries_[static_cast<size_t>(entry)];
  (e.before >= 0 ? entries_[static_cast<size_t>(e.before)].after : oldest_) = e.after;
  (e.after >= 0 ? entries_[static_cast<size_t>(e.after)].before : youngest_) = e.before;
  e.before = e.after = -1;
}

void EncoderCache::pin(int entry) {
  Entry& e = entries_[static_cast<size_t>(entry)];
  if (e.pins++ > 0) return;
  unlink(entry);
  pinned_rows_ += static_cast<int>(e.rows.size());
}

void EncoderCache::drop(int entry) {
  Entry& e = entries_[static_cast<size_t>(entry)];
  TERN_CHECK(e.pins == 0 && !e.rows.empty());
  if (e.known) by_key_.erase(e.key);
  e.known = false;
  free_.insert(free_.end(), e.rows.rbegin(), e.rows.rend());
  e.rows.clear();
  spare_.push_back(entry);
}

int EncoderCache::find(const Hash128& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return -1;
  pin(found->second);
  return found->second;
}

int EncoderCache::insert(const Hash128& key, int rows) {
  TERN_CHECK(rows > 0);
  if (rows > capacity_ - pinned_rows_) return -1;
  while (static_cast<int>(free_.size()) < rows) {
    const int entry = oldest_;
    TERN_CHECK(entry >= 0);
    unlink(entry);
    drop(entry);
  }
  if (spare_.empty()) {
    spare_.push_back(static_cast<int>(entries_.size()));
    entries_.emplace_back();
  }
  const int entry = spare_.back();
  spare_.pop_back();
  Entry& e = entries_[static_cast<size_t>(entry)];
  e.key = key;
  e.rows.assign(free_.rbegin(), free_.rbegin() + rows);
  free_.resize(free_.size() - static_cast<size_t>(rows));
  e.pins = 1;
  e.known = true;
  pinned_rows_ += rows;
  TERN_CHECK_MSG(by_key_.emplace(key, entry).second, "the picture is cached already");
  return entry;
}

void EncoderCache::unpin(int entry) {
  Entry& e = entries_[static_cast<size_t>(entry)];
  TERN_CHECK(e.pins > 0);
  if (--e.pins > 0) return;
  pinned_rows_ -= static_cast<int>(e.rows.size());
  if (e.known) {
    link(entry);
  } else {
    drop(entry);
  }
}

void EncoderCache::forget(const Hash128& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const int entry = found->second;
  by_key_.erase(found);
  entries_[static_cast<size_t>(entry)].known = false;
  if (entries_[static_cast<size_t>(entry)].pins > 0) return;
  unlink(entry);
  drop(entry);
}

void EncoderCache::forget_all() {
  while (!by_key_.empty()) forget(Hash128(by_key_.begin()->first));
}

void EncoderCache::check_invariants() const {
  std::vector<bool> owned(static_cast<size_t>(capacity_), false);
  const auto own = [&](int32_t row) {
    TERN_CHECK(row >= 0 && row < capacity_ && !owned[static_cast<size_t>(row)]);
    owned[static_cast<size_t>(row)] = true;
  };
  for (int32_t row : free_) own(row);
  int pinned = 0, linked = 0;
  size_t known = 0, in_use = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    TERN_CHECK(e.pins >= 0);
    if (e.rows.empty()) {
      TERN_CHECK(e.pins == 0 && !e.known);
      continue;
    }
    ++in_use;
    for (int32_t row : e.rows) own(row);
    if (e.known) TERN_CHECK(by_key_.at(e.key) == static_cast<int>(i));
    TERN_CHECK(e.known || e.pins > 0);
    known += e.known ? 1 : 0;
    if (e.pins > 0) pinned += static_cast<int>(e.rows.size());
    linked += e.pins == 0 ? 1 : 0;
  }
  for (bool o : owned) TERN_CHECK(o);
  TERN_CHECK(pinned == pinned_rows_ && known == by_key_.size() && in_use + spare_.size() == entries_.size());
  int before = -1;
  for (int e = oldest_; e >= 0; before = e, e = entries_[static_cast<size_t>(e)].after, --linked) {
    TERN_CHECK(entries_[static_cast<size_t>(e)].before == before && entries_[static_cast<size_t>(e)].pins == 0);
  }
  TERN_CHECK(before == youngest_ && linked == 0);
}

}  // namespace tern::cache
