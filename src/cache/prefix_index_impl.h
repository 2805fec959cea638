// Private parts of PrefixIndex: nodes of the radix tree, a hash table onto them, and the heap of unused leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "cache/prefix_index.h"

namespace tern::cache {

struct PrefixNode {
  Hash128 hash;
  int32_t parent = -1;
  int32_t block = -1;
  int32_t children = 0;
  // Whether someone besides the index holds the block, plus the number of children whose own count is not zero. Zero:
  // the whole subtree is unused and may go.
  int32_t active = 0;
  int32_t heap_at = -1;  // place in the heap of unused leaves, or -1
  uint64_t used = 0;     // tick of the last use
};

// Open addressing with linear probing over node numbers; sized once at twice the pool, so it never grows.
class NodeTable {
 public:
  void resize(size_t nodes);
  int32_t find(const Hash128& hash, const std::vector<PrefixNode>& nodes) const;
  void insert(int32_t node, const std::vector<PrefixNode>& nodes);
  void erase(int32_t node, const std::vector<PrefixNode>& nodes);

 private:
  size_t home(const Hash128& hash) const { return static_cast<size_t>(hash.lo) & mask_; }
  std::vector<int32_t> slots_;
  size_t mask_ = 0;
};

// Binary heap of node numbers, least recently used on top; nodes know their place, so any can be taken out.
class LeafHeap {
 public:
  void reserve(size_t nodes) { heap_.reserve(nodes); }
  bool empty() const { return heap_.empty(); }
  int32_t top() const { return heap_.front(); }
  size_t size() const { return heap_.size(); }
  void push(int32_t node, std::vector<PrefixNode>& nodes);
  void remove(int32_t node, std::vector<PrefixNode>& nodes);
  // The node's tick has grown.
  void aged(int32_t node, std::vector<PrefixNode>& nodes);

 private:
  void place(size_t at, int32_t node, std::vector<PrefixNode>& nodes);
  void sift_up(size_t at, std::vector<PrefixNode>& nodes);
  void sift_down(size_t at, std::vector<PrefixNode>& nodes);
  std::vector<int32_t> heap_;
};

struct PrefixIndex::Impl final : BlockWatcher {
  std::vector<PrefixNode> nodes;
  std::vector<int32_t> spare;          // unused node numbers
  std::vector<int32_t> node_of_block;  // or -1
  NodeTable table;
  LeafHeap leaves;
  uint64_t tick = 0;
  int count = 0;
  int unused = 0;                // nodes with active == 0
  PrefixNames* names = nullptr;  // null: nobody asks

  void holders_changed(int32_t block, bool shared) override;
  void activate(int32_t node);
  void deactivate(int32_t node);
  void touch(int32_t node);
  // Takes an unused leaf out; returns its block, still referenced by the index.
  int32_t take_out(int32_t node);
};

}  // namespace tern::cache
