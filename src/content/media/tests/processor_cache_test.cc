#include "content/media/service/processor_cache.h"

#include <gtest/gtest.h>

namespace tern::content {
namespace {

PreparedMediaPtr entry(size_t bytes) {
  auto media = std::make_shared<PreparedMedia>();
  media->bytes = bytes;
  media->patches = std::make_shared<const RawBytes>(1, std::byte{});
  return media;
}

Hash128 key(uint64_t n) { return {n, n}; }

TEST(ProcessorCache, FindsByEveryKey) {
  ProcessorCache cache(1 << 20);
  const auto a = entry(1000);
  cache.insert(key(1), a);
  cache.insert(key(2), a);
  EXPECT_EQ(cache.find(key(1)), a);
  EXPECT_EQ(cache.find(key(2)), a);
  EXPECT_EQ(cache.find(key(3)), nullptr);
  EXPECT_EQ(cache.items(), 1u);
  EXPECT_GE(cache.bytes(), 1000u);
}

TEST(ProcessorCache, AKeyLeadsToWhatItWasGivenLast) {
  ProcessorCache cache(1 << 20);
  const auto a = entry(10), b = entry(20);
  cache.insert(key(1), a);
  cache.insert(key(1), b);
  EXPECT_EQ(cache.find(key(1)), b);
}

TEST(ProcessorCache, TheLeastRecentlyUsedLeaveFirst) {
  ProcessorCache cache(3 * 12000);
  const auto a = entry(10000), b = entry(10000), c = entry(10000), d = entry(10000);
  cache.insert(key(1), a);
  cache.insert(key(2), b);
  cache.insert(key(3), c);
  EXPECT_EQ(cache.find(key(1)), a);
  cache.insert(key(4), d);
  EXPECT_EQ(cache.find(key(2)), nullptr);
  EXPECT_EQ(cache.find(key(1)), a);
  EXPECT_EQ(cache.find(key(4)), d);
  EXPECT_LE(cache.bytes(), 3u * 12000);
}

TEST(ProcessorCache, WhatIsTooLargeIsNotKeptAndAnEmptyCacheKeepsNothing) {
  ProcessorCache cache(5000);
  cache.insert(key(1), entry(6000));
  EXPECT_EQ(cache.find(key(1)), nullptr);
  EXPECT_EQ(cache.bytes(), 0u);
  ProcessorCache off(0);
  EXPECT_FALSE(off.enabled());
  off.insert(key(1), entry(1));
  EXPECT_EQ(off.find(key(1)), nullptr);
}

TEST(ProcessorCache, EvictsOnlyWhatNobodyUses) {
  ProcessorCache cache(1 << 20);
  const auto used = entry(1000);
  cache.insert(key(1), used);
  cache.insert(key(2), entry(1000));
  cache.insert(key(3), entry(1000));
  cache.evict_unused(1);
  EXPECT_EQ(cache.find(key(2)), nullptr);
  EXPECT_NE(cache.find(key(3)), nullptr);
  cache.evict_unused(1 << 20);
  EXPECT_EQ(cache.find(key(1)), used);
  EXPECT_EQ(cache.items(), 1u);
}

TEST(ProcessorCache, KeysOfOneEntryAreBounded) {
  ProcessorCache cache(1 << 20);
  const auto a = entry(10);
  for (uint64_t i = 0; i < 1000; i++) cache.insert(key(i), a);
  EXPECT_EQ(cache.items(), 1u);
  EXPECT_LT(cache.bytes(), 10000u);
  EXPECT_EQ(cache.find(key(999)), a);
  EXPECT_EQ(cache.find(key(0)), nullptr);
}

}  // namespace
}  // namespace tern::content
