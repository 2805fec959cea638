#include "cache/prefix_names.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <unordered_set>

namespace tern::cache {
namespace {

// Few homes, so that runs of places meet and wrap around.
Hash128 hash_of(uint64_t n) { return {n % 5 == 0 ? ~uint64_t{0} : n % 5, n + 1}; }

TEST(PrefixNames, NothingIsThereBeforeTheIndexBegins) {
  const PrefixNames names;
  const std::vector<Hash128> one{hash_of(1)};
  EXPECT_EQ(names.peek(one), 0);
  EXPECT_EQ(names.size(), 0u);
}

TEST(PrefixNames, CountsUpToTheFirstThatIsMissing) {
  PrefixNames names;
  names.begin(4);
  const std::vector<Hash128> chain{hash_of(1), hash_of(2), hash_of(3)};
  names.add(chain[0]);
  names.add(chain[2]);
  EXPECT_EQ(names.peek(chain), 1);
  names.add(chain[1]);
  names.add(chain[1]);
  EXPECT_EQ(names.peek(chain), 3);
  EXPECT_EQ(names.size(), 3u);
  names.remove(chain[0]);
  names.remove(chain[0]);
  EXPECT_EQ(names.peek(chain), 0);
  EXPECT_EQ(names.size(), 2u);
}

TEST(PrefixNames, RandomRunsAreASet) {
  std::mt19937 rng(3);
  PrefixNames names;
  constexpr size_t kMost = 60;
  names.begin(kMost);
  std::unordered_set<uint64_t> want;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t n = rng() % 150;
    if (want.contains(n)) {
      names.remove(hash_of(n));
      want.erase(n);
    } else if (want.size() < kMost) {
      names.add(hash_of(n));
      want.insert(n);
    }
    ASSERT_EQ(names.size(), want.size());
    const uint64_t asked = rng() % 150;
    const std::vector<Hash128> one{hash_of(asked)};
    ASSERT_EQ(names.peek(one), want.contains(asked) ? 1 : 0);
  }
}

// For the thread sanitizer.
TEST(PrefixNames, OneWritesWhileOthersAsk) {
  PrefixNames names;
  names.begin(64);
  std::vector<Hash128> chain;
  for (uint64_t n = 0; n < 32; ++n) chain.push_back(hash_of(n));
  for (const Hash128& hash : chain) names.add(hash);
  std::vector<std::thread> askers;
  for (int t = 0; t < 2; ++t) {
    askers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const int length = names.peek(chain);
        EXPECT_TRUE(length == 31 || length == 32) << length;
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    names.remove(chain.back());
    names.add(chain.back());
  }
  for (std::thread& t : askers) t.join();
}

}  // namespace
}  // namespace tern::cache
