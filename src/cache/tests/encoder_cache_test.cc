#include "cache/encoder_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>

namespace tern::cache {
namespace {

Hash128 key(uint64_t n) { return {n * 0x9e3779b97f4a7c15ull, n}; }

TEST(EncoderCache, KeepsWhatIsUnpinnedUntilItsRowsAreWanted) {
  EncoderCache c(10);
  const int a = c.insert(key(1), 4), b = c.insert(key(2), 4);
  EXPECT_EQ(c.pinned(), 8);
  EXPECT_EQ(c.insert(key(3), 3), -1) << "both are pinned";
  c.unpin(a), c.unpin(b);
  EXPECT_EQ(c.used(), 8);
  EXPECT_EQ(c.find(key(1)), a) << "still there, and now the younger";
  c.unpin(a);
  const int d = c.insert(key(3), 5);
  ASSERT_GE(d, 0);
  EXPECT_EQ(c.find(key(2)), -1) << "the least recently used gave way";
  EXPECT_EQ(c.find(key(1)), a);
  c.check_invariants();
}

TEST(EncoderCache, RowsNeedNotBeNeighbours) {
  EncoderCache c(6);
  std::vector<int> entries;
  for (uint64_t n = 0; n < 6; ++n) entries.push_back(c.insert(key(n), 1));
  for (int at : {1, 3, 5}) c.unpin(entries[static_cast<size_t>(at)]);
  const int e = c.insert(key(9), 3);
  ASSERT_GE(e, 0);
  EXPECT_EQ(c.rows(e).size(), 3u);
  EXPECT_EQ(c.size(), 4);
  c.check_invariants();
}

TEST(EncoderCache, ForgottenContentIsNotFoundAgain) {
  EncoderCache c(4);
  const int a = c.insert(key(1), 2);
  c.forget(key(1));
  EXPECT_EQ(c.find(key(1)), -1);
  EXPECT_EQ(c.rows(a).size(), 2u) << "whoever pinned it may read on";
  const int again = c.insert(key(1), 2);
  ASSERT_GE(again, 0);
  EXPECT_NE(c.rows(a)[0], c.rows(again)[0]);
  c.unpin(a);
  EXPECT_EQ(c.used(), 2);
  c.unpin(again);
  c.forget(key(1)), c.forget(key(7));
  EXPECT_EQ(c.used(), 0);
  c.check_invariants();
}

TEST(EncoderCache, HoldsNothingWithoutRows) {
  EncoderCache c(0);
  EXPECT_EQ(c.insert(key(1), 1), -1);
  EXPECT_EQ(c.find(key(1)), -1);
  c.check_invariants();
}

// What the cache ought to hold, as a list: what is found, what gives way, what is refused.
class ListModel {
 public:
  ListModel(EncoderCache& cache, int rows) : c_(cache), rows_(rows) {}

  void look_up(uint64_t n, int rows_if_new) {
    const auto at = find(n);
    const int found = c_.find(key(n));
    EXPECT_EQ(found >= 0, at != known_.end());
    if (found < 0) return insert(n, rows_if_new);
    EXPECT_EQ(found, at->entry);
    ++at->pins, ++hits;
    known_.splice(known_.end(), known_, at);
    pins_.emplace_back(found, n);
  }
  size_t pinned() const { return pins_.size(); }
  void unpin(size_t which) {
    const auto [entry, of] = pins_[which];
    pins_.erase(pins_.begin() + static_cast<ptrdiff_t>(which));
    c_.unpin(entry);
    const auto k = std::find_if(known_.begin(), known_.end(), [&](const Known& x) { return x.entry == entry; });
    if (k != known_.end() && k->n == of) {
      // Age counts from the moment it is free to go.
      if (--k->pins == 0) known_.splice(known_.end(), known_, k);
    } else if (std::none_of(pins_.begin(), pins_.end(), [&](const auto& p) { return p.first == entry; })) {
      lost_.erase(entry);
    }
  }
  bool knows(uint64_t n) { return find(n) != known_.end(); }
  void forget(uint64_t n) {
    const auto at = find(n);
    c_.forget(key(n));
    if (at->pins > 0) lost_[at->entry] = at->rows;
    known_.erase(at);
  }
  int size() const { return static_cast<int>(known_.size()); }

  int hits = 0, refused = 0, evicted = 0;

 private:
  struct Known {
    uint64_t n;
    int rows, pins, entry;
  };
  std::list<Known>::iterator find(uint64_t n) {
    return std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.n == n; });
  }
  void insert(uint64_t n, int rows) {
    int pinned = 0, all = 0;
    for (const Known& k : known_) pinned += k.pins > 0 ? k.rows : 0, all += k.rows;
    for (auto& [entry, r] : lost_) pinned += r, all += r;
    const int entry = c_.insert(key(n), rows);
    EXPECT_EQ(entry >= 0, pinned + rows <= rows_);
    refused += entry < 0;
    if (entry < 0) return;
    for (auto k = known_.begin(); all + rows > rows_; ++evicted) {
      while (k->pins > 0) ++k;
      all -= k->rows;
      k = known_.erase(k);
    }
    known_.push_back({n, rows, 1, entry});
    pins_.emplace_back(entry, n);
  }

  EncoderCache& c_;
  const int rows_;
  std::list<Known> known_;                      // oldest use first
  std::vector<std::pair<int, uint64_t>> pins_;  // entry, key
  std::map<int, int> lost_;                     // forgotten entries that are still pinned: rows
};

TEST(EncoderCache, AgreesWithAListUnderRandomUse) {
  std::mt19937 random(20251121);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  EncoderCache c(40);
  ListModel model(c, 40);
  for (int step = 0; step < 20000; ++step) {
    const auto n = static_cast<uint64_t>(below(25));
    const int action = below(10);
    if (action < 5) {
      model.look_up(n, 1 + below(16));
    } else if (action < 9 && model.pinned() > 0) {
      model.unpin(static_cast<size_t>(below(static_cast<int>(model.pinned()))));
    } else if (action == 9 && below(4) == 0 && model.knows(n)) {
      model.forget(n);
    }
    c.check_invariants();
    EXPECT_EQ(c.size(), model.size());
  }
  EXPECT_GT(model.hits, 1000);
  EXPECT_GT(model.refused, 100);
  EXPECT_GT(model.evicted, 1000);
}

}  // namespace
}  // namespace tern::cache
