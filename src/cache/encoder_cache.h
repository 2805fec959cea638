// Which rows of a fixed buffer hold which encoded picture (fastdeploy.md 4.8, --max-encoder-cache): a repeated
// picture is encoded once. Rows are dealt one by one, so the buffer cannot fragment. Pure: it knows numbers, not
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace tern::cache {

class EncoderCache {
 public:
  explicit EncoderCache(int rows);

  // The entry of `key`, pinned once more, or -1.
  int find(const Hash128& key);
  // A new entry of `rows` rows (at least 1), pinned once; unpinned entries give way, least recently used first.
  // `key` must not be cached. -1, with nothing changed, when even all of them do not make enough room.
  int insert(const Hash128& key, int rows);
  // Whoever pinned an entry is done with it. Unpinned, it stays until its rows are wanted.
  void unpin(int entry);
  // The content is not worth keeping: no later find() gives it. Rows that are pinned return with the last pin.
  void forget(const Hash128& key);
  void forget_all();

  // Where its rows lie in the buffer, first row of the picture first. Valid until the entry goes.
  std::span<const int32_t> rows(int entry) const { return entries_[static_cast<size_t>(entry)].rows; }
  int capacity() const { return capacity_; }
  int used() const { return capacity_ - static_cast<int>(free_.size()); }
  int pinned() const { return pinned_rows_; }
  int size() const { return static_cast<int>(by_key_.size()); }
  // Asserts that every row has one owner and every entry its place: for tests.
  void check_invariants() const;

 private:
  struct Entry {
    Hash128 key;
    std::vector<int32_t> rows;  // empty: the entry is not in use
    int pins = 0;
    bool known = false;               // by_key_ names it
    int32_t before = -1, after = -1;  // among the unpinned ones, by age
  };
  void link(int entry);  // as the youngest
  void unlink(int entry);
  void pin(int entry);
  void drop(int entry);  // rows become free

  int capacity_;
  std::vector<int32_t> free_;
  std::vector<Entry> entries_;
  std::vector<int> spare_;  // entries not in use
  std::unordered_map<Hash128, int> by_key_;
  int oldest_ = -1, youngest_ = -1;
  int pinned_rows_ = 0;
};

}  // namespace tern::cache
