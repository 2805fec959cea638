#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace tern::cache {
namespace {

constexpr HashKey kKey{11, 12};

// The chained hashes of blocks named by one number each.
std::vector<Hash128> chain(std::initializer_list<int32_t> names) {
  std::vector<Hash128> hashes;
  for (int32_t name : names) {
    hashes.push_back(block_hash(kKey, hashes.empty() ? Hash128{} : hashes.back(), std::span(&name, 1), {}));
  }
  return hashes;
}

class PrefixIndexTest : public ::testing::Test {
 protected:
  // Takes blocks for a chain and caches them; they stay held until let_go.
  std::vector<int32_t> cache(const std::vector<Hash128>& hashes) {
    std::vector<int32_t> blocks;
    index.match(hashes, blocks);
    for (size_t i = blocks.size(); i < hashes.size(); ++i) {
      const int32_t block = pool.take();
      EXPECT_EQ(index.insert(i == 0 ? Hash128{} : hashes[i - 1], hashes[i], block), block);
      blocks.push_back(block);
    }
    index.check_invariants();
    return blocks;
  }
  void let_go(const std::vector<int32_t>& blocks) {
    for (size_t i = blocks.size(); i-- > 0;) pool.release(blocks[i]);
    index.check_invariants();
  }

  BlockPool pool{17};
  PrefixNames names;
  PrefixIndex index{pool, kKey, &names};
};

TEST(BlockHash, EveryPartCounts) {
  const std::vector<int32_t> a{1, 2, 3, 4}, b{1, 2, 3, 5};
  const std::vector<uint64_t> x{7}, y{8};
  const Hash128 base = block_hash(kKey, {}, a, {});
  EXPECT_EQ(base, block_hash(kKey, {}, a, {}));
  EXPECT_NE(base, block_hash(kKey, {}, b, {}));
  EXPECT_NE(base, block_hash(HashKey{11, 13}, {}, a, {}));
  EXPECT_NE(base, block_hash(kKey, base, a, {}));
  EXPECT_NE(base, block_hash(kKey, {}, a, x));
  EXPECT_NE(block_hash(kKey, {}, a, y), block_hash(kKey, {}, a, x));
  // Token ids cannot pose as an extra key: 7 and 0 are the words of x.
  const std::vector<int32_t> posing{7, 0, 1, 2, 3, 4};
  EXPECT_NE(block_hash(kKey, {}, posing, {}), block_hash(kKey, {}, a, x));
}

TEST(BlockHash, LargeBlocks) {
  std::vector<int32_t> tokens(4096, 3);
  const Hash128 hash = block_hash(kKey, {}, tokens, {});
  tokens.back() = 4;
  EXPECT_NE(hash, block_hash(kKey, {}, tokens, {}));
}

TEST_F(PrefixIndexTest, MatchesTheLongestPrefix) {
  const std::vector<int32_t> blocks = cache(chain({1, 2, 3}));
  let_go(blocks);
  EXPECT_EQ(index.peek(chain({1, 2, 9})), 2);
  std::vector<int32_t> found{42};
  index.match(chain({1, 2, 9, 3}), found);
  EXPECT_EQ(found, (std::vector<int32_t>{blocks[0], blocks[1]}));
  EXPECT_EQ(pool.refs(blocks[0]), 2);
  EXPECT_EQ(pool.refs(blocks[2]), 1);
  EXPECT_EQ(index.evictable(), 1);
  let_go(found);
  index.match(chain({9, 1}), found);
  EXPECT_TRUE(found.empty());
}

TEST_F(PrefixIndexTest, FirstBlockOfAContentStays) {
  const auto hashes = chain({1, 2});
  const std::vector<int32_t> blocks = cache(hashes);
  const int32_t other = pool.take();
  EXPECT_EQ(index.insert({}, hashes[0], other), blocks[0]);
  EXPECT_EQ(pool.refs(other), 1);
  EXPECT_FALSE(index.holds(other));
  EXPECT_EQ(index.size(), 2);
}

TEST_F(PrefixIndexTest, OrphansAreRefused) {
  const auto hashes = chain({1, 2});
  EXPECT_EQ(index.insert(hashes[0], hashes[1], pool.take()), -1);
  EXPECT_EQ(index.size(), 0);
}

TEST_F(PrefixIndexTest, EvictsOldLeavesFirstAndNothingInUse) {
  const auto a = cache(chain({1, 2})), b = cache(chain({1, 3})), c = cache(chain({4}));
  EXPECT_EQ(index.size(), 4);
  EXPECT_EQ(index.evict(4), 0);
  let_go(c);
  let_go(b);
  EXPECT_EQ(index.evictable(), 2);
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(index.peek(chain({4})), 0);  // let go first
  let_go(a);
  // The parent is the last one, though its age is that of its youngest child.
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(index.peek(chain({1, 3})), 1);
  EXPECT_EQ(index.peek(chain({1, 2})), 2);
  EXPECT_EQ(index.evict(5), 2);
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(pool.free_count(), 16);
  index.check_invariants();
}

TEST_F(PrefixIndexTest, MatchRefreshesAge) {
  let_go(cache(chain({1})));
  let_go(cache(chain({2})));
  std::vector<int32_t> found;
  index.match(chain({1}), found);
  let_go(found);
  index.evict(1);
  EXPECT_EQ(index.peek(chain({1})), 1);
  EXPECT_EQ(index.peek(chain({2})), 0);
}

TEST_F(PrefixIndexTest, AncestorsOfAHeldBlockStay) {
  // Someone holds the child only: its parent must not go, nor be counted.
  const auto blocks = cache(chain({1, 2, 3}));
  pool.release(blocks[0]);
  pool.release(blocks[1]);
  index.check_invariants();
  EXPECT_EQ(index.evictable(), 0);
  EXPECT_EQ(index.evict(3), 0);
  pool.release(blocks[2]);
  EXPECT_EQ(index.evictable(), 3);
  EXPECT_EQ(index.evict(3), 3);
}

TEST_F(PrefixIndexTest, ClearLeavesHeldBlocksToTheirHolders) {
  const auto held = cache(chain({1, 2}));
  let_go(cache(chain({1, 5, 6})));
  EXPECT_EQ(names.peek(chain({1, 5, 6})), 3);
  index.clear();
  index.check_invariants();
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(names.size(), 0u);
  EXPECT_EQ(names.peek(chain({1, 5, 6})), 0);
  EXPECT_EQ(pool.free_count(), 14);
  EXPECT_EQ(pool.refs(held[1]), 1);
  EXPECT_EQ(cache(chain({7})).size(), 1u);
}

// What is held, cached and free adds up, whatever the order of things.
TEST_F(PrefixIndexTest, RandomRunsAddUp) {
  std::mt19937 rng(5);
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  std::vector<std::vector<int32_t>> held;
  int evictions = 0;
  for (int step = 0; step < 20000; ++step) {
    if (held.size() > 3 || pick(3) == 0) {
      if (held.empty()) continue;
      const auto at = static_cast<size_t>(pick(static_cast<int>(held.size())));
      let_go(held[at]);
      held.erase(held.begin() + static_cast<long>(at));
      continue;
    }
    std::vector<Hash128> hashes;
    for (int i = 1 + pick(4); i > 0; --i) {
      const int32_t name = pick(3);
      hashes.push_back(block_hash(kKey, hashes.empty() ? Hash128{} : hashes.back(), std::span(&name, 1), {}));
    }
    std::vector<int32_t> blocks;
    const int peeked = index.peek(hashes);
    ASSERT_EQ(names.peek(hashes), peeked);
    index.match(hashes, blocks);
    ASSERT_EQ(static_cast<int>(blocks.size()), peeked);
    const int need = static_cast<int>(hashes.size() - blocks.size());
    const int usable = pool.free_count() + index.evictable();
    if (need > pool.free_count()) {
      const int before = index.evictable(), count = need - pool.free_count();
      const int freed = index.evict(count);
      ASSERT_EQ(freed, std::min(before, count));
      evictions += freed;
    }
    if (usable < need) {
      let_go(blocks);
      continue;
    }
    for (size_t i = blocks.size(); i < hashes.size(); ++i) {
      const int32_t block = pool.take();
      ASSERT_GT(block, 0);
      ASSERT_EQ(index.insert(i == 0 ? Hash128{} : hashes[i - 1], hashes[i], block), block);
      blocks.push_back(block);
    }
    held.push_back(blocks);
    index.check_invariants();
    std::set<int32_t> in_use;
    for (const auto& h : held) in_use.insert(h.begin(), h.end());
    ASSERT_EQ(index.size() - index.evictable(), static_cast<int>(in_use.size()));
    ASSERT_EQ(pool.free_count() + index.size(), 16);
  }
  EXPECT_GT(evictions, 1000);
}

}  // namespace
}  // namespace tern::cache
