// Collectives over ranks of a CPU: against the same sums on one thread, bit by bit, however late a rank is; and that a
// wait left out is found.
#include "ops/collective.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "device/cpu_exchange.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {
namespace {

using device::Communicator;
using device::CpuExchange;
using Floats = std::vector<float>;

// A rank that does not wait at its meeting number `meeting`.
class Careless final : public CpuExchange {
 public:
  Careless(int ranks, int rank, int meeting) : CpuExchange(ranks, false), rank_(rank), left_(meeting) {}

 private:
  bool waits(int rank) override { return rank != rank_ || left_-- != 0; }
  const int rank_;
  int left_;
};

class Ranks {
 public:
  explicit Ranks(int n, std::unique_ptr<CpuExchange> exchange = nullptr) : n_(n), exchange_(std::move(exchange)) {
    if (exchange_ == nullptr) exchange_ = std::make_unique<CpuExchange>(n, false);
  }
  void run(const std::function<void(int, const Communicator&)>& work) const {
    std::vector<std::thread> threads;
    for (int r = 0; r < n_; ++r) {
      threads.emplace_back([&, r] { work(r, {r, n_, exchange_.get(), nullptr}); });
    }
    for (std::thread& t : threads) t.join();
  }

 private:
  const int n_;
  std::unique_ptr<CpuExchange> exchange_;
};

Floats random_floats(std::mt19937& random, int64_t n) {
  std::normal_distribution<float> normal;
  Floats v(static_cast<size_t>(n));
  for (float& x : v) x = normal(random) * std::exp(2.0f * normal(random));
  return v;
}

void sleep_a_little(std::mt19937& random) {
  if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

bool same_bits(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Rounds of sums of random sizes. Returns how many results were wrong on any rank.
int wrong_sums(const Ranks& ranks, int n, uint32_t seed, const std::vector<std::pair<int64_t, int64_t>>& shapes) {
  std::mt19937 random(seed);
  std::vector<std::vector<Floats>> in(shapes.size());
  std::vector<Floats> want(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const int64_t elements = shapes[i].first * shapes[i].second;
    for (int r = 0; r < n; ++r) in[i].push_back(random_floats(random, elements));
    want[i] = in[i][0];
    for (int r = 1; r < n; ++r) {
      for (size_t e = 0; e < want[i].size(); ++e) want[i][e] += in[i][static_cast<size_t>(r)][e];
    }
  }
  std::atomic<int> wrong{0};
  ranks.run([&](int rank, const Communicator& c) {
    std::mt19937 delays(seed * 31 + static_cast<uint32_t>(rank));
    for (size_t i = 0; i < shapes.size(); ++i) {
      Floats& x = in[i][static_cast<size_t>(rank)];
      sleep_a_little(delays);
      const TensorView view = tensor2(x.data(), DType::kF32, shapes[i].first, shapes[i].second);
      if (!all_reduce({c, view}, {}).ok() || !same_bits(x, want[i])) ++wrong;
    }
  });
  return wrong;
}

std::vector<std::pair<int64_t, int64_t>> random_shapes(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int i = 0; i < 12; ++i) {
    const int64_t rows = random() % 3 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 90);
    shapes.emplace_back(rows, 1 + static_cast<int64_t>(random() % (i % 4 == 0 ? 1500 : 300)));
  }
  shapes.emplace_back(0, 64);
  shapes.emplace_back(1, CpuExchange::kStageBytes / 4);  // the most that is added up at once
  shapes.emplace_back(1, CpuExchange::kStageBytes / 4 + 1);
  return shapes;
}

TEST(AllReduce, SumsInTheOrderOfRanks) {
  for (const int n : {2, 4, 8}) {
    const Ranks ranks(n);
    for (uint32_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(wrong_sums(ranks, n, seed, random_shapes(seed)), 0) << n;
  }
}

TEST(AllReduce, ARankWithAPoolAddsUpTheSame) {
  const Ranks ranks(2);
  std::mt19937 random(5);
  std::vector<Floats> x = {random_floats(random, 300000), random_floats(random, 300000)};
  Floats want = x[0];
  for (size_t i = 0; i < want.size(); ++i) want[i] += x[1][i];
  ranks.run([&](int rank, const Communicator& c) {
    device::ComputePool pool(2, false);
    const TensorView view = tensor2(x[static_cast<size_t>(rank)].data(), DType::kF32, 300, 1000);
    EXPECT_TRUE(all_reduce({c, view}, {device::DeviceKind::kCpu, &pool, nullptr}).ok());
  });
  for (const Floats& got : x) EXPECT_TRUE(same_bits(got, want));
}

#if !defined(__SANITIZE_THREAD__)  // it would tell of the race itself
TEST(AllReduce, AWaitLeftOutIsFound) {
  for (const int64_t elements : {int64_t{96}, int64_t{80000}}) {
    const std::vector<std::pair<int64_t, int64_t>> shapes(8, {1, elements});
    int found = 0;
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      // Not among the first meetings: what was never brought cannot be read.
      const Ranks ranks(4, std::make_unique<Careless>(4, 1, 4 + static_cast<int>(seed % 4)));
      found += wrong_sums(ranks, 4, seed, shapes) > 0;
    }
    EXPECT_GT(found, 0) << elements;
  }
}
#endif

TEST(AllReduce, WhatDoesNotFit) {
  Floats x(12);
  const TensorView view = tensor2(x.data(), DType::kF32, 3, 4);
  EXPECT_TRUE(all_reduce({{}, view}, {}).ok());  // one rank
  EXPECT_FALSE(all_reduce({{0, 2, nullptr, nullptr}, view}, {}).ok());
  EXPECT_FALSE(all_reduce({{}, tensor2(x.data(), DType::kF32, 3, 2, 4)}, {}).ok());
  EXPECT_FALSE(all_reduce({{}, tensor2(x.data(), DType::kBF16, 3, 4)}, {}).ok());
  EXPECT_FALSE(all_reduce({{}, view}, {device::DeviceKind::kCuda, nullptr, nullptr}).ok());
}

// Columns of unequal width, rows dealt at random or all to rank 0, rows of others untouched.
TEST(AllToAll, RowsComeToTheirOwnerWhole) {
  for (const int n : {1, 2, 4, 8}) {
    const Ranks ranks(n);
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      std::mt19937 random(seed);
      const int64_t rows = static_cast<int64_t>(random() % 40), width = 1 + static_cast<int64_t>(random() % 70);
      const int64_t vocab = width * n - static_cast<int64_t>(random() % static_cast<uint32_t>(width));
      const bool dealt = seed % 4 != 0;
      std::vector<int32_t> owner(static_cast<size_t>(rows));
      for (int32_t& o : owner) o = dealt ? static_cast<int32_t>(random() % static_cast<uint32_t>(n)) : 0;
      const Floats whole = random_floats(random, rows * vocab);
      ranks.run([&](int rank, const Communicator& c) {
        const int64_t first = rank * width, mine = std::min(width, vocab - first), stride = mine + rank;
        Floats x(static_cast<size_t>(rows * stride) + 1), out(static_cast<size_t>(rows * vocab) + 1, -7.0f);
        for (int64_t l = 0; l < rows; ++l) std::copy_n(whole.begin() + l * vocab + first, mine, x.begin() + l * stride);
        AllToAllParams p{c, tensor2(x.data(), DType::kF32, rows, mine, stride), first, dealt ? owner.data() : nullptr,
                         tensor2(out.data(), DType::kF32, rows, vocab)};
        if (!dealt && rank > 0) p.out = {};
        ASSERT_TRUE(all_to_all(p, {}).ok());
        for (int64_t l = 0; l < rows; ++l) {
          const bool own = owner[static_cast<size_t>(l)] == rank;
          for (int64_t v = 0; v < vocab; ++v) {
            const auto at = static_cast<size_t>(l * vocab + v);
            ASSERT_EQ(out[at], own ? whole[at] : -7.0f) << n << " ranks, seed " << seed;
          }
        }
      });
    }
  }
}

TEST(AllGather, EveryEntryIsItsOwners) {
  for (const int n : {1, 2, 4, 8}) {
    const Ranks ranks(n);
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      std::mt19937 random(seed);
      const auto size = static_cast<size_t>(seed == 20 ? 40000 : random() % 300);
      std::vector<int32_t> owner(size);
      for (int32_t& o : owner) o = static_cast<int32_t>(random() % static_cast<uint32_t>(n));
      const bool dealt = seed % 4 != 0;
      ranks.run([&](int rank, const Communicator& c) {
        std::vector<int32_t> x(size);
        for (size_t i = 0; i < size; ++i) x[i] = rank * 1000000 + static_cast<int32_t>(i);
        const TensorView view = tensor1(x.data(), DType::kI32, static_cast<int64_t>(size));
        ASSERT_TRUE(all_gather({c, dealt ? owner.data() : nullptr, view}, {}).ok());
        for (size_t i = 0; i < size; ++i) ASSERT_EQ(x[i], (dealt ? owner[i] : 0) * 1000000 + static_cast<int32_t>(i));
      });
    }
  }
}

// Rows that engines bring, some of them none: few ones, and more than fit where ranks read what others brought.
TEST(AllGatherRows, EveryRankHasAllRows) {
  std::mt19937 random(12);
  for (const int n : {1, 2, 4}) {
    for (const int64_t width : {1, 7, 3000}) {
      std::vector<int64_t> first = {0};
      for (int r = 0; r < n; ++r) first.push_back(first.back() + static_cast<int64_t>(r == 1 ? 0 : random() % 40));
      const Floats want = random_floats(random, first.back() * width);
      Ranks(n).run([&](int r, const Communicator& c) {
        Floats mine(want.size(), -1.0f);
        const auto begin = static_cast<std::ptrdiff_t>(first[static_cast<size_t>(r)] * width);
        const auto end = static_cast<std::ptrdiff_t>(first[static_cast<size_t>(r) + 1] * width);
        std::copy(want.begin() + begin, want.begin() + end, mine.begin() + begin);
        for (int again = 0; again < 3; ++again) {
          const auto s = all_gather_rows({c, first, tensor2(mine.data(), DType::kF32, first.back(), width)}, {});
          ASSERT_TRUE(s.ok()) << s.error().message;
        }
        EXPECT_EQ(mine, want);
      });
    }
  }
}

TEST(ReduceScatter, RowsAreSumsInTheOrderOfRanks) {
  std::mt19937 random(13);
  for (const int n : {1, 2, 4}) {
    for (const int64_t rows : {1, 9, 90}) {
      const int64_t width = 700;
      std::vector<Floats> brought;
      for (int r = 0; r < n; ++r) brought.push_back(random_floats(random, rows * width));
      Floats sum = brought[0];
      for (int r = 1; r < n; ++r) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += brought[static_cast<size_t>(r)][i];
      }
      Ranks(n).run([&](int r, const Communicator& c) {
        // Two ranks want the same rows; where there are few, some want none.
        const int64_t begin = r / 2 * rows / 2, count = rows - begin - (r % 2 == 1 && n > 2 ? rows - begin : 0);
        Floats x = brought[static_cast<size_t>(r)], out(static_cast<size_t>(count * width), -1.0f);
        for (int again = 0; again < 3; ++again) {
          const auto s = reduce_scatter(
              {c, tensor2(x.data(), DType::kF32, rows, width), begin, tensor2(out.data(), DType::kF32, count, width)},
              {});
          ASSERT_TRUE(s.ok()) << s.error().message;
        }
        const auto from = sum.begin() + static_cast<std::ptrdiff_t>(begin * width);
        EXPECT_TRUE(std::equal(out.begin(), out.end(), from));
        // And what is added last.
        Floats shared(out.size()), gate(static_cast<size_t>(count), 0.0f);
        for (size_t i = 0; i < shared.size(); ++i) shared[i] = static_cast<float>(i % 17);
        const Floats before = out;
        const auto s = reduce_scatter(
            {c, tensor2(x.data(), DType::kF32, rows, width), begin, tensor2(out.data(), DType::kF32, count, width),
             tensor2(shared.data(), DType::kF32, count, width), tensor1(gate.data(), DType::kF32, count)},
            {});
        ASSERT_TRUE(s.ok()) << s.error().message;
        for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], before[i] + 0.5f * shared[i]);
        EXPECT_EQ(x, brought[static_cast<size_t>(r)]);
      });
    }
  }
}

}  // namespace
}  // namespace tern::ops
