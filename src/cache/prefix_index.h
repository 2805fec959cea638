// From the content of full blocks to block numbers: keyed 128-bit chained hashes over token ids and extra keys (spec
// fastdeploy.md 6.5). The index holds one reference of each block it names; unused leaves go first, least recently
// used.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/hash.h"
#include "cache/block_pool.h"
#include "cache/prefix_names.h"

namespace tern::cache {

// Hash of a block: of its parent's hash, its token ids, and the extra keys that touch it with their offsets.
Hash128 block_hash(HashKey key, const Hash128& parent, std::span<const int32_t> tokens,
                   std::span<const uint64_t> extra);

// One index per pool. Memory is fixed at construction by the pool's size; match, insert and the eviction of one block
// cost O(blocks touched), O(1) and O(log n).
class PrefixIndex {
 public:
  // `names`: told of every hash that comes and goes; outlives the index. Null: nobody asks.
  PrefixIndex(BlockPool& pool, HashKey key, PrefixNames* names = nullptr);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  HashKey key() const { return key_; }
  // The longest prefix of `hashes` (one per full block, chained) that is cached: block numbers, each retained once for
  // the caller, replace what `blocks` held. Refreshes their age.
  void match(std::span<const Hash128> hashes, std::vector<int32_t>& blocks);
  // Length of that prefix without retaining or refreshing anything.
  int peek(std::span<const Hash128> hashes) const;
  // Names `block` as the content of `hash` (child of `parent`; a default Hash128 for the first block). If the content
  // is already cached under another block, that one stays and its number is returned; the index retains what it takes.
  // -1 when the parent is not cached: the caller inserts from its first block again.
  int32_t insert(const Hash128& parent, const Hash128& hash, int32_t block);
  // Frees up to `count` unused leaves, oldest first, parents after their children; returns how many blocks became free.
  // Never frees what anyone else holds, nor the ancestors of it.
  int evict(int count);
  // Blocks that evict() could free now or after their children: held, with all their descendants, by the index alone.
  int evictable() const;
  int size() const;
  bool holds(int32_t block) const;
  // Forgets everything; blocks that sequences hold stay theirs.
  void clear();
  // Asserts that the structure is consistent, in O(size): for tests and debug builds.
  void check_invariants() const;

 private:
  struct Impl;
  BlockPool& pool_;
  HashKey key_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::cache
