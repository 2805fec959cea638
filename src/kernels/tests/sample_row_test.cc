#include "kernels/cpu/sample/sample_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/cpu_isa.h"

namespace tern::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<const SampleKernels*> kernel_sets() {
  std::vector<const SampleKernels*> sets{&sample_kernels_scalar()};
  if (detect_isa() >= Isa::kAvx2) sets.push_back(&sample_kernels_avx2());
  if (detect_isa() >= Isa::kAvx512) sets.push_back(&sample_kernels_avx512());
  return sets;
}

std::vector<float> normal_logits(int64_t n, float sigma, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> d(0, sigma);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = d(rng);
  return x;
}

struct Space {
  explicit Space(int64_t n) : memory(RowSpace::bytes(n) + 64) {
    auto p = reinterpret_cast<uintptr_t>(memory.data());
    space = RowSpace::make(reinterpret_cast<void*>((p + 63) / 64 * 64), n);
  }
  std::vector<char> memory;
  RowSpace space;
};

uint32_t scalar_weight(float x, float scale, float top) {
  uint32_t w;
  sample_kernels_scalar().weights(&x, 1, scale, top, &w);
  return w;
}

// The rules of sample_row() by sorting.
int32_t sorted_sample(const std::vector<float>& x, const SampleRowArgs& a) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t i, int32_t j) { return x[static_cast<size_t>(i)] > x[static_cast<size_t>(j)]; });
  const auto at = [&](int64_t i) { return x[static_cast<size_t>(order[static_cast<size_t>(i)])]; };
  if (a.greedy || a.top_p < 1e-5f) return order[0];
  const float top = at(0) * a.scale;
  std::vector<uint64_t> w(x.size());
  uint64_t all = 0;
  for (int64_t i = 0; i < n; ++i) all += w[static_cast<size_t>(i)] = scalar_weight(at(i), a.scale, top);
  uint64_t base = all;
  for (auto& v : w) {
    if (static_cast<double>(v) < std::ceil(static_cast<double>(a.min_p) * (1 << 30))) v = 0;
  }
  if (a.top_k > 0 && a.top_k < n) {
    for (int64_t i = a.top_k; i < n; ++i) w[static_cast<size_t>(i)] = 0;
    base = std::accumulate(w.begin(), w.end(), uint64_t{0});
  }
  if (a.top_p < 1.0f) {
    const double limit = std::max(1.0, std::ceil(static_cast<double>(a.top_p) * static_cast<double>(base)));
    uint64_t above = 0, run = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (i > 0 && at(i) != at(i - 1)) above = run;
      run += w[static_cast<size_t>(i)];
      if (static_cast<double>(above) >= limit) w[static_cast<size_t>(i)] = 0;
    }
  }
  std::vector<uint64_t> by_id(x.size());
  uint64_t kept = 0;
  for (int64_t i = 0; i < n; ++i)
    kept += by_id[static_cast<size_t>(order[static_cast<size_t>(i)])] = w[static_cast<size_t>(i)];
  const auto target = static_cast<uint64_t>((static_cast<unsigned __int128>(a.random) * kept) >> 64);
  uint64_t run = 0;
  for (size_t i = 0; i < by_id.size(); ++i) {
    if ((run += by_id[i]) > target) return static_cast<int32_t>(i);
  }
  return -1;
}

TEST(SampleKernels, WeightsFollowTheExponential) {
  double worst = 0;
  for (float d = 0; d > -20.0f; d -= 0.00137f) {
    const double exact = std::exp(static_cast<double>(d));
    double sums[kSumLanes];
    sample_kernels_scalar().exp_sum(&d, 1, 1.0f, 0.0f, sums);
    worst = std::max(worst, std::abs(sums[0] / exact - 1));
    EXPECT_NEAR(scalar_weight(d, 1.0f, 0.0f), exact * (1 << 30), 0.51 + exact * 500);
  }
  EXPECT_LT(worst, 4.6e-7);
  EXPECT_EQ(scalar_weight(3.25f, 2.0f, 6.5f), 1u << 30);
  EXPECT_EQ(scalar_weight(-kInf, 1.0f, 0.0f), 0u);
  EXPECT_EQ(scalar_weight(-1e10f, 1.0f, 5.0f), 0u);
}

TEST(SampleKernels, InstructionSetsAgreeBitByBit) {
  std::mt19937 rng(7);
  for (int64_t n : {1, 7, 8, 15, 16, 17, 31, 33, 100, 2048, 4099, 10007}) {
    for (float sigma : {0.01f, 1.0f, 6.0f}) {
      auto x = normal_logits(n, sigma, static_cast<uint32_t>(n));
      for (int i = 0; i < 5; ++i) x[rng() % x.size()] = i % 2 ? -kInf : -1e10f;
      x[rng() % x.size()] = x[rng() % x.size()];
      const float scale = 1.0f / 0.7f;
      MaxScan want_max;
      sample_kernels_scalar().max_scan(x.data(), n, &want_max);
      const float top = want_max.max * scale;
      MassScan want{x.data(), n,  scale, top,    {want_max.max - 1, want_max.max - 3, want_max.max - 8},
                    0,        {}, {},    nullptr};
      sample_kernels_scalar().mass_scan(&want);
      std::vector<uint32_t> want_w(x.size() + 16), w(x.size() + 16);
      sample_kernels_scalar().weights(x.data(), n, scale, top, want_w.data());
      double want_sums[kSumLanes], sums[kSumLanes];
      sample_kernels_scalar().exp_sum(x.data(), n, scale, top, want_sums);
      std::vector<float> want_v(x.size() + 16), v(x.size() + 16);
      std::vector<int32_t> want_i(x.size() + 16), idx(x.size() + 16);
      const int64_t want_k = sample_kernels_scalar().filter(x.data(), n, 0.3f, 2.5f, 100, want_v.data(), want_i.data());
      for (const SampleKernels* k : kernel_sets()) {
        MaxScan m;
        k->max_scan(x.data(), n, &m);
        EXPECT_EQ(m.max, want_max.max);
        EXPECT_EQ(m.index, want_max.index);
        EXPECT_EQ(m.nan, 0);
        MassScan s = want;
        s.weights = w.data();
        k->mass_scan(&s);
        EXPECT_TRUE(std::equal(w.begin(), w.begin() + n, want_w.begin()));
        EXPECT_EQ(s.mass, want.mass);
        for (int j = 0; j < kMassCuts; ++j) {
          EXPECT_EQ(s.cut_mass[j], want.cut_mass[j]);
          EXPECT_EQ(s.cut_count[j], want.cut_count[j]);
        }
        k->weights(x.data(), n, scale, top, w.data());
        MassScan again = want;
        k->cut_scan(&again, w.data());
        EXPECT_TRUE(std::equal(again.cut_mass, again.cut_mass + kMassCuts, want.cut_mass));
        EXPECT_TRUE(std::equal(again.cut_count, again.cut_count + kMassCuts, want.cut_count));
        EXPECT_TRUE(std::equal(x.begin(), x.end(), x.begin()) && std::equal(w.begin(), w.begin() + n, want_w.begin()));
        k->exp_sum(x.data(), n, scale, top, sums);
        EXPECT_TRUE(std::equal(sums, sums + kSumLanes, want_sums));
        ASSERT_EQ(k->filter(x.data(), n, 0.3f, 2.5f, 100, v.data(), idx.data()), want_k);
        EXPECT_TRUE(std::equal(v.begin(), v.begin() + want_k, want_v.begin()));
        EXPECT_TRUE(std::equal(idx.begin(), idx.begin() + want_k, want_i.begin()));
        EXPECT_EQ(k->count_above(x.data(), n, 0.1f), sample_kernels_scalar().count_above(x.data(), n, 0.1f));
      }
    }
  }
}

TEST(SampleKernels, SelectionFindsTheBoundary) {
  std::mt19937 rng(3);
  std::vector<uint64_t> bins(kSelectBins);
  for (int round = 0; round < 300; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(rng() % 500);
    const uint32_t range = 1u << (rng() % 32);
    std::vector<uint32_t> off(static_cast<size_t>(n)), w(off.size()), list(off.size());
    uint64_t total = 0;
    for (size_t i = 0; i < off.size(); ++i) {
      off[i] = static_cast<uint32_t>(rng()) % range;
      total += w[i] = rng() % 4 == 0 ? 0 : static_cast<uint32_t>(rng() >> 2);
    }
    if (total == 0) continue;
    const uint64_t limit = 1 + rng() % total;
    uint32_t want = 0;
    for (size_t i = 0; i < off.size(); ++i) {
      uint64_t below = 0;
      for (size_t j = 0; j < off.size(); ++j) below += off[j] < off[i] ? w[j] : 0;
      if (w[i] > 0 && below < limit) want = std::max(want, off[i]);
    }
    EXPECT_EQ(select_offset(off.data(), w.data(), n, limit, list.data(), bins.data()), want);
  }
}

TEST(SampleRow, EqualsTheSortedDefinition) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 1500; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(rng() % 5000);
    const float sigmas[] = {0.0f, 0.5f, 2.0f, 8.0f};
    auto x = normal_logits(n, sigmas[rng() % 4], static_cast<uint32_t>(rng()));
    for (size_t i = 0; i < x.size() && round % 3 == 0; ++i) x[i] = std::round(x[i] * 2) / 2;  // many ties
    SampleRowArgs a;
    a.x = x.data(), a.n = n;
    const float scales[] = {1.0f, 1.0f / 0.7f, 0.1f, 20.0f};
    const float top_ps[] = {1.0f, 0.8f, 0.3f, 0.0f, 0.999f, 0.7f};
    const float min_ps[] = {0.0f, 0.0f, 0.05f, 1.0f, 0.5f};
    const int32_t top_ks[] = {0, -1, 1, 2, 50, 3000, 1000000};
    a.scale = scales[rng() % 4], a.top_p = top_ps[rng() % 6], a.min_p = min_ps[rng() % 5], a.top_k = top_ks[rng() % 7];
    a.random = rng();
    a.want_prob = rng() % 2;
    const int32_t want = sorted_sample(x, a);
    Space space(n);
    for (const SampleKernels* k : kernel_sets()) {
      const SampleRowResult r = sample_row(*k, a, space.space);
      ASSERT_EQ(r.status, SampleRowStatus::kOk);
      ASSERT_EQ(r.id, want) << "n " << n << " scale " << a.scale << " top_p " << a.top_p << " min_p " << a.min_p
                            << " top_k " << a.top_k;
    }
  }
}

TEST(SampleRow, WideNucleiEqualTheSortedDefinition) {
  std::mt19937_64 rng(21);
  for (int round = 0; round < 60; ++round) {
    const int64_t n = 20000 + static_cast<int64_t>(rng() % 30000);
    const float sigmas[] = {0.0f, 0.01f, 0.5f, 1.0f, 2.0f};
    auto x = normal_logits(n, sigmas[rng() % 5], static_cast<uint32_t>(rng()));
    for (size_t i = 0; i < x.size() && round % 3 == 0; ++i) x[i] = std::round(x[i] * 4) / 4;
    if (round % 7 == 0) std::fill(x.begin() + 100, x.end(), -1e10f);
    if (round % 11 == 0) std::fill(x.begin(), x.begin() + n / 2, -kInf);
    SampleRowArgs a;
    a.x = x.data(), a.n = n;
    const float top_ps[] = {0.8f, 0.3f, 0.999999f, 0.05f, 0.99f};
    const float scales[] = {1.0f, 0.1f, 3.0f};
    a.scale = scales[rng() % 3], a.top_p = top_ps[rng() % 5];
    Space space(n);
    std::vector<uint32_t> bits(static_cast<size_t>(n + 31) / 32), first;
    for (int draws = 0; draws < 3; ++draws) {
      a.random = draws == 0 ? 0 : draws == 1 ? ~uint64_t{0} : rng();
      const int32_t want = sorted_sample(x, a);
      for (const SampleKernels* k : kernel_sets()) {
        ASSERT_EQ(sample_row(*k, a, space.space).id, want) << "n " << n << " scale " << a.scale << " top_p " << a.top_p;
        kept_ids(*k, a, space.space, bits.data());
        EXPECT_TRUE(bits[static_cast<size_t>(want / 32)] >> (want % 32) & 1);
        if (!first.empty()) {
          EXPECT_EQ(bits, first) << "of any draw, by any instruction set";
        }
        first = bits;
      }
    }
  }
}

TEST(SampleRow, GreedyTakesTheLowestIdOnTies) {
  std::vector<float> x(1000, -3.0f);
  x[400] = x[17] = x[999] = 2.0f;
  Space space(1000);
  for (const SampleKernels* k : kernel_sets()) {
    for (int variant = 0; variant < 3; ++variant) {
      SampleRowArgs a;
      a.x = x.data(), a.n = 1000, a.random = ~uint64_t{0};
      a.greedy = variant == 0, a.top_k = variant == 1 ? 1 : 0, a.top_p = variant == 2 ? 0.0f : 1.0f;
      EXPECT_EQ(sample_row(*k, a, space.space).id, 17);
    }
    x[3] = 0.0f, x[5] = -0.0f;
    std::vector<float> zeros{-1.0f, -0.0f, 0.0f};
    SampleRowArgs a;
    a.x = zeros.data(), a.n = 3, a.greedy = true;
    EXPECT_EQ(sample_row(*k, a, space.space).id, 1);
  }
}

TEST(SampleRow, OddLogitsNeverCrash) {
  Space space(70);
  const float odd[] = {kInf, -kInf, kNan, 3e38f, -3e38f, 1e-42f, 0.0f, -0.0f, 1.0f};
  std::mt19937_64 rng(5);
  for (int round = 0; round < 3000; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(rng() % 70);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = odd[rng() % (round % 2 ? 9 : 2)];
    SampleRowArgs a;
    a.x = x.data(), a.n = n, a.random = rng();
    a.scale = round % 5 ? 1.0f : 1e5f;
    a.top_p = round % 3 ? 0.8f : 1.0f, a.top_k = static_cast<int32_t>(rng() % 4), a.min_p = round % 7 ? 0.0f : 0.1f;
    a.want_prob = true;
    const bool nan = std::any_of(x.begin(), x.end(), [](float v) { return std::isnan(v); });
    const bool empty = !nan && std::all_of(x.begin(), x.end(), [](float v) { return v == -kInf; });
    for (const SampleKernels* k : kernel_sets()) {
      const SampleRowResult r = sample_row(*k, a, space.space);
      EXPECT_EQ(r.status, nan ? SampleRowStatus::kNan : empty ? SampleRowStatus::kEmpty : SampleRowStatus::kOk);
      EXPECT_GE(r.id, 0);
      EXPECT_LT(r.id, n);
      if (r.status == SampleRowStatus::kOk) {
        EXPECT_GT(x[static_cast<size_t>(r.id)], -kInf);
      }
      uint32_t bits[3];
      kept_ids(*k, a, space.space, bits);
      EXPECT_EQ(bits[r.id / 32] >> (r.id % 32) & 1, r.status == SampleRowStatus::kOk ? 1u : 0u);
      EXPECT_EQ(std::isnan(entropy(*k, a.x, a.n, a.scale)), r.status != SampleRowStatus::kOk);
      Candidate out[8];
      LogprobArgs l;
      l.x = x.data(), l.n = n, l.scale = a.scale, l.top_p = a.top_p, l.target = r.id;
      l.top = static_cast<int32_t>(std::min<int64_t>(n, 7));
      logprobs(*k, l, space.space, out);
      EXPECT_EQ(out[0].id, r.id);
    }
  }
}

TEST(Logprobs, EqualTheDefinition) {
  for (const SampleKernels* k : kernel_sets()) {
    for (int64_t n : {5, 100, 9000}) {
      auto x = normal_logits(n, 3.0f, static_cast<uint32_t>(n));
      x[1] = x[3];
      Space space(n);
      for (float scale : {1.0f, 0.5f}) {
        for (float top_p : {1.0f, 0.6f}) {
          std::vector<int32_t> order(x.size());
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(),
                           [&](int32_t i, int32_t j) { return x[static_cast<size_t>(i)] > x[static_cast<size_t>(j)]; });
          double all = 0, kept = 0;
          for (float v : x) all += std::exp(static_cast<double>(v) * scale);
          size_t nucleus = 0;
          for (; nucleus < x.size() && kept < top_p * all * (1 - 1e-9); ++nucleus) {
            kept += std::exp(static_cast<double>(x[static_cast<size_t>(order[nucleus])]) * scale);
          }
          const auto top = static_cast<int32_t>(std::min<int64_t>(n, 300));
          std::vector<Candidate> out(static_cast<size_t>(top) + 1);
          LogprobArgs a{x.data(), n, scale, top_p, false, order[2], top};
          logprobs(*k, a, space.space, out.data());
          EXPECT_EQ(out[0].id, order[2]);
          EXPECT_EQ(out[0].rank, 3);
          for (size_t i = 0; i < static_cast<size_t>(top); ++i) {
            EXPECT_EQ(out[i + 1].id, order[i]);
            EXPECT_EQ(out[i + 1].rank, static_cast<int32_t>(i) + 1);
            const double want = static_cast<double>(x[static_cast<size_t>(order[i])]) * scale - std::log(kept);
            if (i < nucleus || top_p >= 1.0f) {
              EXPECT_NEAR(out[i + 1].logprob, want, 2e-6 + 1e-6 * std::abs(want));
            } else {
              EXPECT_EQ(out[i + 1].logprob, -kInf);
            }
          }
          a.logits = true;
          logprobs(*k, a, space.space, out.data());
          EXPECT_EQ(out[1].logprob, x[static_cast<size_t>(order[0])] * scale);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tern::kernels
