#include "cache/prefix_index.h"

#include <cstring>

#include "base/check.h"
#include "cache/prefix_index_impl.h"

namespace tern::cache {

Hash128 block_hash(HashKey key, const Hash128& parent, std::span<const int32_t> tokens,
                   std::span<const uint64_t> extra) {
  // The counts keep token ids and extra keys apart.
  const uint64_t head[4] = {parent.lo, parent.hi, tokens.size(), extra.size()};
  const size_t bytes = sizeof head + tokens.size_bytes() + extra.size_bytes();
  unsigned char small[2048];
  std::vector<unsigned char> large;
  unsigned char* buffer = small;
  if (bytes > sizeof small) {
    large.resize(bytes);
    buffer = large.data();
  }
  std::memcpy(buffer, head, sizeof head);
  if (!extra.empty()) std::memcpy(buffer + sizeof head, extra.data(), extra.size_bytes());
  if (!tokens.empty()) std::memcpy(buffer + sizeof head + extra.size_bytes(), tokens.data(), tokens.size_bytes());
  return siphash128(key, buffer, bytes);
}

PrefixIndex::PrefixIndex(BlockPool& pool, HashKey key, PrefixNames* names)
    : pool_(pool), key_(key), impl_(std::make_unique<Impl>()) {
  const auto blocks = static_cast<size_t>(pool.size());
  impl_->nodes.resize(blocks);
  impl_->node_of_block.assign(blocks, -1);
  impl_->spare.reserve(blocks);
  for (size_t i = blocks; i-- > 0;) impl_->spare.push_back(static_cast<int32_t>(i));
  impl_->table.resize(blocks);
  impl_->leaves.reserve(blocks);
  impl_->names = names;
  if (names != nullptr) names->begin(blocks);
  pool_.set_watcher(impl_.get());
}

PrefixIndex::~PrefixIndex() {
  clear();
  pool_.set_watcher(nullptr);
}

void PrefixIndex::match(std::span<const Hash128> hashes, std::vector<int32_t>& blocks) {
  blocks.clear();
  for (const Hash128& hash : hashes) {
    const int32_t node = impl_->table.find(hash, impl_->nodes);
    if (node < 0) break;
    const int32_t block = impl_->nodes[static_cast<size_t>(node)].block;
    impl_->touch(node);
    pool_.retain(block);
    blocks.push_back(block);
  }
}

int PrefixIndex::peek(std::span<const Hash128> hashes) const {
  int length = 0;
  while (static_cast<size_t>(length) < hashes.size() &&
         impl_->table.find(hashes[static_cast<size_t>(length)], impl_->nodes) >= 0) {
    ++length;
  }
  return length;
}

int32_t PrefixIndex::insert(const Hash128& parent, const Hash128& hash, int32_t block) {
  Impl& m = *impl_;
  const int32_t known = m.table.find(hash, m.nodes);
  if (known >= 0) {
    m.touch(known);
    return m.nodes[static_cast<size_t>(known)].block;
  }
  int32_t above = -1;
  if (parent != Hash128{}) {
    above = m.table.find(parent, m.nodes);
    if (above < 0) return -1;
  }
  TERN_CHECK_MSG(!holds(block), "block " + std::to_string(block) + " is cached under another hash");
  const int32_t n = m.spare.back();
  m.spare.pop_back();
  pool_.retain(block);
  PrefixNode& node = m.nodes[static_cast<size_t>(n)];
  node = PrefixNode{hash, above, block, 0, 0, -1, ++m.tick};
  m.table.insert(n, m.nodes);
  if (m.names != nullptr) m.names->add(hash);
  m.node_of_block[static_cast<size_t>(block)] = n;
  ++m.count, ++m.unused;
  if (above >= 0) {
    PrefixNode& up = m.nodes[static_cast<size_t>(above)];
    if (up.heap_at >= 0) m.leaves.remove(above, m.nodes);
    ++up.children;
  }
  pool_.watch(block, true);
  if (pool_.refs(block) > 1) {
    m.activate(n);
  } else {
    m.leaves.push(n, m.nodes);
  }
  return block;
}

int PrefixIndex::evict(int count) {
  int freed = 0;
  while (freed < count && !impl_->leaves.empty()) {
    const int32_t block = impl_->take_out(impl_->leaves.top());
    pool_.watch(block, false);
    TERN_CHECK(pool_.release(block));
    ++freed;
  }
  return freed;
}

int PrefixIndex::evictable() const { return impl_->unused; }

int PrefixIndex::size() const { return impl_->count; }

bool PrefixIndex::holds(int32_t block) const { return impl_->node_of_block[static_cast<size_t>(block)] >= 0; }

void PrefixIndex::clear() {
  evict(impl_->unused);
  // What is left is held by sequences, or lies above it: let go of the blocks and start over.
  for (size_t block = 0; block < impl_->node_of_block.size(); ++block) {
    if (impl_->node_of_block[block] < 0) continue;
    pool_.watch(static_cast<int32_t>(block), false);
    pool_.release(static_cast<int32_t>(block));
  }
  const auto blocks = static_cast<size_t>(pool_.size());
  Impl& m = *impl_;
  m.nodes.assign(blocks, PrefixNode{});
  m.node_of_block.assign(blocks, -1);
  m.spare.clear();
  for (size_t i = blocks; i-- > 0;) m.spare.push_back(static_cast<int32_t>(i));
  m.table.resize(blocks);
  m.leaves = LeafHeap{};
  m.leaves.reserve(blocks);
  m.count = m.unused = 0;
  if (m.names != nullptr) m.names->begin(blocks);
}

void PrefixIndex::check_invariants() const {
  const Impl& m = *impl_;
  int count = 0, unused = 0, leaves = 0;
  for (size_t block = 0; block < m.node_of_block.size(); ++block) {
    const int32_t n = m.node_of_block[block];
    if (n < 0) continue;
    const PrefixNode& node = m.nodes[static_cast<size_t>(n)];
    ++count;
    TERN_CHECK(node.block == static_cast<int32_t>(block));
    TERN_CHECK(m.table.find(node.hash, m.nodes) == n);
    int children = 0, active = pool_.refs(node.block) > 1 ? 1 : 0;
    for (int32_t other : m.node_of_block) {
      if (other < 0 || m.nodes[static_cast<size_t>(other)].parent != n) continue;
      ++children;
      if (m.nodes[static_cast<size_t>(other)].active > 0) ++active;
    }
    TERN_CHECK(children == node.children && active == node.active);
    if (node.parent >= 0) TERN_CHECK(m.nodes[static_cast<size_t>(node.parent)].block >= 0);
    if (active == 0) ++unused;
    TERN_CHECK((node.heap_at >= 0) == (active == 0 && children == 0));
    if (node.heap_at >= 0) ++leaves;
  }
  TERN_CHECK(m.names == nullptr || m.names->size() == static_cast<size_t>(count));
  TERN_CHECK(count == m.count && unused == m.unused && static_cast<size_t>(leaves) == m.leaves.size());
}

}  // namespace tern::cache
