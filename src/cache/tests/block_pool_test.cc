#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace tern::cache {
namespace {

TEST(BlockPool, NullBlockIsNeverGivenOut) {
  BlockPool pool(4);
  EXPECT_EQ(pool.size(), 4);
  EXPECT_EQ(pool.free_count(), 3);
  std::set<int32_t> taken;
  for (int i = 0; i < 3; ++i) taken.insert(pool.take());
  EXPECT_EQ(taken, (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(pool.take(), -1);
}

TEST(BlockPool, LastReferenceFrees) {
  BlockPool pool(3);
  const int32_t block = pool.take();
  pool.retain(block);
  EXPECT_EQ(pool.refs(block), 2);
  EXPECT_FALSE(pool.release(block));
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.release(block));
  EXPECT_EQ(pool.free_count(), 2);
  EXPECT_EQ(pool.take(), block);  // the warm one again
}

TEST(BlockPoolDeathTest, MisuseIsCaught) {
  BlockPool pool(3);
  EXPECT_DEATH(pool.release(0), "block 0");
  EXPECT_DEATH(pool.retain(0), "block 0");
  EXPECT_DEATH(pool.release(1), "block 1");
  EXPECT_DEATH(pool.retain(7), "block 7");
  EXPECT_DEATH(BlockPool(0), "null block");
}

struct Recorder final : BlockWatcher {
  std::vector<std::pair<int32_t, bool>> calls;
  void holders_changed(int32_t block, bool shared) override { calls.emplace_back(block, shared); }
};

TEST(BlockPool, WatcherHearsOfTheSecondHolder) {
  BlockPool pool(3);
  Recorder recorder;
  pool.set_watcher(&recorder);
  const int32_t block = pool.take();
  pool.retain(block);  // not watched yet
  pool.release(block);
  pool.watch(block, true);
  pool.retain(block);
  pool.retain(block);  // a third holder is no news
  pool.release(block);
  pool.release(block);
  EXPECT_EQ(recorder.calls, (std::vector<std::pair<int32_t, bool>>{{block, true}, {block, false}}));
  EXPECT_DEATH(pool.release(block), "watched");
  pool.watch(block, false);
  EXPECT_TRUE(pool.release(block));
}

}  // namespace
}  // namespace tern::cache
