#include "base/memory/pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace tern {
namespace {

TEST(Pages, BlocksOfEverySizeHoldWhatIsWritten) {
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (const size_t bytes : {size_t{0}, size_t{1}, kPagesFrom - 1, kPagesFrom, kPagesFrom + 1, size_t{2} << 20,
                             (size_t{2} << 20) + 1, (size_t{6} << 20) - 1000, size_t{7} << 20}) {
    auto* block = static_cast<unsigned char*>(take_pages(bytes));
    ASSERT_NE(block, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignof(std::max_align_t), 0u);
    std::memset(block, static_cast<int>(blocks.size() + 1), bytes);
    blocks.emplace_back(block, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    for (size_t at = 0; at < bytes; ++at) ASSERT_EQ(block[at], i + 1) << bytes;
    give_pages(block, bytes);
  }
  give_pages(nullptr, 5);
  EXPECT_EQ(take_pages(SIZE_MAX - 5), nullptr);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Pages, ABlockComesBackAndOnlyForItsSize) {
  const size_t bytes = (size_t{5} << 20) + 4096;
  void* block = take_pages(bytes);
  give_pages(block, bytes);
  void* other = take_pages(2 * bytes);
  EXPECT_NE(other, block);
  void* again = take_pages(bytes);
  EXPECT_EQ(again, block);
  give_pages(other, 2 * bytes);
  give_pages(again, bytes);
}
#endif

// More than is kept, by several threads.
TEST(Pages, TakenAndGivenByManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<std::pair<unsigned char*, size_t>> held;
      for (int i = 0; i < 60; ++i) {
        const size_t bytes = (size_t{1} << 20) + static_cast<size_t>(i % 5) * (size_t{3} << 20);
        auto* block = static_cast<unsigned char*>(take_pages(bytes));
        ASSERT_NE(block, nullptr);
        block[0] = block[bytes - 1] = static_cast<unsigned char>(t);
        held.emplace_back(block, bytes);
        if (held.size() < 8) continue;
        EXPECT_EQ(held.front().first[0], t);
        EXPECT_EQ(held.front().first[held.front().second - 1], t);
        give_pages(held.front().first, held.front().second);
        held.erase(held.begin());
      }
      for (const auto& [block, size] : held) give_pages(block, size);
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tern
