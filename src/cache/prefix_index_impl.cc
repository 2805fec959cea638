#include "cache/prefix_index_impl.h"

#include <bit>
#include <utility>

#include "base/check.h"

namespace tern::cache {

void NodeTable::resize(size_t nodes) {
  const size_t capacity = std::bit_ceil(2 * nodes + 2);
  slots_.assign(capacity, -1);
  mask_ = capacity - 1;
}

int32_t NodeTable::find(const Hash128& hash, const std::vector<PrefixNode>& nodes) const {
  for (size_t at = home(hash);; at = (at + 1) & mask_) {
    const int32_t node = slots_[at];
    if (node < 0 || nodes[static_cast<size_t>(node)].hash == hash) return node;
  }
}

void NodeTable::insert(int32_t node, const std::vector<PrefixNode>& nodes) {
  size_t at = home(nodes[static_cast<size_t>(node)].hash);
  while (slots_[at] >= 0) at = (at + 1) & mask_;
  slots_[at] = node;
}

void NodeTable::erase(int32_t node, const std::vector<PrefixNode>& nodes) {
  size_t at = home(nodes[static_cast<size_t>(node)].hash);
  while (slots_[at] != node) at = (at + 1) & mask_;
  // Later entries of the run move back over the hole, so that probing needs no tombstones.
  for (size_t next = (at + 1) & mask_; slots_[next] >= 0; next = (next + 1) & mask_) {
    const size_t wish = home(nodes[static_cast<size_t>(slots_[next])].hash);
    if (((next - wish) & mask_) >= ((next - at) & mask_)) {
      slots_[at] = slots_[next];
      at = next;
    }
  }
  slots_[at] = -1;
}

void LeafHeap::place(size_t at, int32_t node, std::vector<PrefixNode>& nodes) {
  heap_[at] = node;
  nodes[static_cast<size_t>(node)].heap_at = static_cast<int32_t>(at);
}

void LeafHeap::sift_up(size_t at, std::vector<PrefixNode>& nodes) {
  const int32_t node = heap_[at];
  const uint64_t used = nodes[static_cast<size_t>(node)].used;
  while (at > 0) {
    const size_t up = (at - 1) / 2;
    if (nodes[static_cast<size_t>(heap_[up])].used <= used) break;
    place(at, heap_[up], nodes);
    at = up;
  }
  place(at, node, nodes);
}

void LeafHeap::sift_down(size_t at, std::vector<PrefixNode>& nodes) {
  const int32_t node = heap_[at];
  const uint64_t used = nodes[static_cast<size_t>(node)].used;
  for (;;) {
    size_t down = 2 * at + 1;
    if (down >= heap_.size()) break;
    const auto age = [&](size_t i) { return nodes[static_cast<size_t>(heap_[i])].used; };
    if (down + 1 < heap_.size() && age(down + 1) < age(down)) ++down;
    if (used <= age(down)) break;
    place(at, heap_[down], nodes);
    at = down;
  }
  place(at, node, nodes);
}

void LeafHeap::push(int32_t node, std::vector<PrefixNode>& nodes) {
  heap_.push_back(node);
  sift_up(heap_.size() - 1, nodes);
}

void LeafHeap::remove(int32_t node, std::vector<PrefixNode>& nodes) {
  const auto at = static_cast<size_t>(nodes[static_cast<size_t>(node)].heap_at);
  nodes[static_cast<size_t>(node)].heap_at = -1;
  const int32_t last = heap_.back();
  heap_.pop_back();
  if (last == node) return;
  place(at, last, nodes);
  sift_up(at, nodes);
  sift_down(static_cast<size_t>(nodes[static_cast<size_t>(last)].heap_at), nodes);
}

void LeafHeap::aged(int32_t node, std::vector<PrefixNode>& nodes) {
  sift_down(static_cast<size_t>(nodes[static_cast<size_t>(node)].heap_at), nodes);
}

void PrefixIndex::Impl::holders_changed(int32_t block, bool shared) {
  const int32_t node = node_of_block[static_cast<size_t>(block)];
  if (shared) {
    activate(node);
  } else {
    nodes[static_cast<size_t>(node)].used = ++tick;
    deactivate(node);
  }
}

// Both climb only while a count changes between zero and one: sequences hold whole chains, so one step is the rule.
void PrefixIndex::Impl::activate(int32_t at) {
  for (int32_t n = at; n >= 0; n = nodes[static_cast<size_t>(n)].parent) {
    PrefixNode& node = nodes[static_cast<size_t>(n)];
    if (node.active++ > 0) return;
    --unused;
    if (node.heap_at >= 0) leaves.remove(n, nodes);
  }
}

void PrefixIndex::Impl::deactivate(int32_t at) {
  for (int32_t n = at; n >= 0; n = nodes[static_cast<size_t>(n)].parent) {
    PrefixNode& node = nodes[static_cast<size_t>(n)];
    if (--node.active > 0) return;
    ++unused;
    if (node.children == 0) leaves.push(n, nodes);
  }
}

void PrefixIndex::Impl::touch(int32_t n) {
  PrefixNode& node = nodes[static_cast<size_t>(n)];
  node.used = ++tick;
  if (node.heap_at >= 0) leaves.aged(n, nodes);
}

int32_t PrefixIndex::Impl::take_out(int32_t n) {
  PrefixNode& node = nodes[static_cast<size_t>(n)];
  TERN_CHECK(node.active == 0 && node.children == 0);
  leaves.remove(n, nodes);
  table.erase(n, nodes);
  if (names != nullptr) names->remove(node.hash);
  --unused, --count;
  const int32_t block = node.block;
  node_of_block[static_cast<size_t>(block)] = -1;
  if (node.parent >= 0) {
    PrefixNode& parent = nodes[static_cast<size_t>(node.parent)];
    if (--parent.children == 0 && parent.active == 0) leaves.push(node.parent, nodes);
  }
  node = PrefixNode{};
  spare.push_back(n);
  return block;
}

}  // namespace tern::cache
