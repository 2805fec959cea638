#include "ops/moe.h"

#include <algorithm>
#include <numeric>

#include "ops/backend.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {
namespace {

struct Route {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};

// The definition, in double.
Route route_oracle(const std::vector<double>& logits, const std::vector<double>& bias, const MoeRouteParams& p) {
  const size_t n = logits.size();
  std::vector<double> s(n), z(n);
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (size_t e = 0; e < n; ++e) {
    s[e] = p.scoring == MoeScoring::kSigmoid ? 1.0 / (1.0 + std::exp(-logits[e])) : std::exp(logits[e] - top);
    total += s[e];
  }
  for (size_t e = 0; e < n; ++e) {
    if (p.scoring == MoeScoring::kSoftmax) s[e] /= total;
    z[e] = s[e] + (bias.empty() ? 0.0 : bias[e]);
  }
  const size_t groups = static_cast<size_t>(p.n_group), size = n / groups;
  if (groups > 1) {
    std::vector<double> score(groups);
    for (size_t g = 0; g < groups; ++g) {
      std::vector<double> part(z.begin() + static_cast<long>(g * size), z.begin() + static_cast<long>((g + 1) * size));
      std::sort(part.rbegin(), part.rend());
      score[g] = bias.empty() || size == 1 ? part[0] : part[0] + part[1];
    }
    std::vector<size_t> order(groups);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
    for (size_t i = static_cast<size_t>(p.topk_group); i < groups; ++i) {
      for (size_t e = order[i] * size; e < (order[i] + 1) * size; ++e) z[e] = -1e300;
    }
  }
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return z[static_cast<size_t>(a)] > z[static_cast<size_t>(b)]; });
  Route r;
  double sum = 0;
  for (int j = 0; j < p.top_k; ++j) {
    r.ids.push_back(order[static_cast<size_t>(j)]);
    r.weights.push_back(s[static_cast<size_t>(r.ids.back())]);
    sum += r.weights.back();
  }
  sum = std::max(sum, static_cast<double>(p.renorm_min));
  for (double& w : r.weights)
    w = (p.renormalize ? w / (sum + static_cast<double>(p.renorm_eps)) : w) * static_cast<double>(p.scale);
  return r;
}

void check_route(MoeRouteParams p, int64_t experts, bool with_bias) {
  const int64_t tokens = 40;
  Threads pool(2);
  const Values logits = random_values(DType::kF32, {tokens, experts}, 1, 2.0f),
               bias = random_values(DType::kF32, {experts}, 2, 0.3f);
  Values ids(DType::kI32, {tokens, p.top_k}), weights(DType::kF32, {tokens, p.top_k});
  p.logits = logits.view(), p.ids = ids.view(), p.weights = weights.view();
  if (with_bias) p.bias = bias.view();
  ASSERT_TRUE(moe_route(p, pool.stream()).ok());
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> l, b;
    for (int64_t e = 0; e < experts; ++e) {
      l.push_back(logits.get(t, e));
      if (with_bias) b.push_back(bias.get(e));
    }
    const Route want = route_oracle(l, b, p);
    for (int j = 0; j < p.top_k; ++j) {
      EXPECT_EQ(ids.at<int32_t>(t, j), want.ids[static_cast<size_t>(j)]) << "token " << t << " rank " << j;
      EXPECT_NEAR(weights.get(t, j), want.weights[static_cast<size_t>(j)], 2e-6);
    }
  }
  // Forced: the same ids give the same weights.
  Values again(DType::kF32, {tokens, p.top_k});
  p.forced = true, p.weights = again.view();
  ASSERT_TRUE(moe_route(p, pool.stream()).ok());
  for (int64_t t = 0; t < tokens; ++t) EXPECT_EQ(again.row(t), weights.row(t));
}

TEST(MoeRoute, EveryPublishedRule) {
  MoeRouteParams p;
  p.top_k = 8;  // Qwen3-MoE
  check_route(p, 128, false);
  p.top_k = 4, p.renormalize = false;  // Qwen2-MoE
  check_route(p, 60, false);
  p = {};
  p.top_k = 2;  // Mixtral
  check_route(p, 8, false);
  p.top_k = 6, p.renorm_min = 1e-12f;  // ERNIE-4.5: a bias only for choosing
  check_route(p, 64, true);
  p = {};
  p.scoring = MoeScoring::kSigmoid, p.top_k = 8, p.n_group = 8, p.topk_group = 4, p.renorm_eps = 1e-20f, p.scale = 2.5f;
  check_route(p, 256, true);        // DeepSeek-V3
  check_route(p, 64, false);        // a group's score without a bias
  p.n_group = 1, p.topk_group = 1;  // GLM-4.5
  check_route(p, 160, true);
  p = {};
  p.top_k = 3, p.n_group = 3, p.topk_group = 3;  // groups of one
  check_route(p, 3, true);
}

TEST(MoeRoute, TiesTakeTheLowerIndexAndMinimumHolds) {
  Threads pool(1);
  Values logits(DType::kF32, {1, 6}), ids(DType::kI32, {1, 3}), weights(DType::kF32, {1, 3});
  for (int e = 0; e < 6; ++e) logits.set(e == 4 ? 1.0f : 0.0f, 0, e);
  MoeRouteParams p;
  p.logits = logits.view(), p.ids = ids.view(), p.weights = weights.view(), p.top_k = 3;
  ASSERT_TRUE(moe_route(p, pool.stream()).ok());
  EXPECT_EQ(ids.at<int32_t>(0, 0), 4);
  EXPECT_EQ(ids.at<int32_t>(0, 1), 0);
  EXPECT_EQ(ids.at<int32_t>(0, 2), 1);
  for (int e = 0; e < 6; ++e) logits.set(-200.0f, 0, e);
  p.scoring = MoeScoring::kSigmoid, p.renorm_min = 1e-12f;
  ASSERT_TRUE(moe_route(p, pool.stream()).ok());
  EXPECT_EQ(weights.get(0, 0), 0.0f);  // not 0 / 0
  for (int e = 0; e < 6; ++e) logits.set(std::numeric_limits<float>::quiet_NaN(), 0, e);
  ASSERT_TRUE(moe_route(p, pool.stream()).ok());  // ids stay in range
  for (int j = 0; j < 3; ++j) EXPECT_LT(ids.at<int32_t>(0, j), 6);

  const MoeRouteParams good = p;
  auto fails = [&](auto&& change) {
    MoeRouteParams q = good;
    change(q);
    EXPECT_FALSE(moe_route(q, pool.stream()).ok());
  };
  fails([](auto& q) { q.top_k = 7; });
  fails([](auto& q) { q.top_k = 0; });
  fails([](auto& q) { q.n_group = 4; });
  fails([](auto& q) { q.n_group = 3, q.topk_group = 1; });
  fails([](auto& q) { q.topk_group = 2; });
  fails([&](auto& q) { q.forced = true, ids.at<int32_t>(0, 1) = 6; });
}

// Tokens of one bank are routed as if the other were not there; a bank of no columns is one dense MLP.
TEST(MoeRoute, BanksAreIsolated) {
  Threads pool(2);
  const int64_t tokens = 60;
  const int top_k = 3;
  Values token_ids(DType::kI32, {tokens});
  for (int64_t t = 0; t < tokens; ++t) token_ids.at<int32_t>(t) = static_cast<int32_t>(t % 20);
  TokenSet second;
  second.from = 15, second.listed = 2, second.ids[0] = 3, second.ids[1] = 7;
  for (const auto& [first, other] : {std::pair<int, int>{6, 9}, {0, 5}, {4, 0}}) {
    const int64_t experts = first + other;
    const Values logits = random_values(DType::kF32, {tokens, experts}, 1, 2.0f),
                 bias = random_values(DType::kF32, {experts}, 2, 0.3f);
    Values ids(DType::kI32, {tokens, top_k}), weights(DType::kF32, {tokens, top_k});
    MoeRouteParams p;
    p.logits = logits.view(), p.bias = bias.view(), p.ids = ids.view(), p.weights = weights.view();
    p.top_k = top_k, p.renorm_min = 1e-12f, p.split = first, p.token_ids = token_ids.view(), p.second = second;
    ASSERT_TRUE(moe_route(p, pool.stream()).ok());
    int in_second = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t id = t % 20;
      const bool is_second = id >= 15 || id == 3 || id == 7;
      in_second += is_second;
      const int begin = is_second ? first : 0, end = is_second ? first + other : first;
      std::vector<double> l, b;
      for (int e = begin; e < end; ++e) l.push_back(logits.get(t, e)), b.push_back(bias.get(e));
      Route want{std::vector<int32_t>(top_k, 0), {1.0, 0.0, 0.0}};
      if (!l.empty()) want = route_oracle(l, b, p);
      for (size_t j = 0; j < top_k; ++j) {
        const auto rank = static_cast<int64_t>(j);
        EXPECT_EQ(ids.at<int32_t>(t, rank), l.empty() ? experts : begin + want.ids[j]) << t << " " << j;
        EXPECT_NEAR(weights.get(t, rank), want.weights[j], 2e-6);
      }
    }
    EXPECT_EQ(in_second, 21);
    Values again(DType::kF32, {tokens, top_k});
    p.forced = true, p.weights = again.view();
    ASSERT_TRUE(moe_route(p, pool.stream()).ok());
    for (int64_t t = 0; t < tokens; ++t) EXPECT_EQ(again.row(t), weights.row(t));
    // An expert of the other bank cannot be forced.
    if (first == 6) {
      ids.at<int32_t>(0, 0) = 6;
      EXPECT_FALSE(moe_route(p, pool.stream()).ok());
    }
    p.forced = false;
    auto fails = [&](auto&& change) {
      MoeRouteParams q = p;
      change(q);
      EXPECT_FALSE(moe_route(q, pool.stream()).ok());
    };
    fails([&](auto& q) { q.split = static_cast<int>(experts) + 1; });
    fails([](auto& q) { q.top_k = 7; });
    fails([](auto& q) { q.token_ids = {}; });
    fails([](auto& q) { q.second.listed = TokenSet::kMaxListed + 1; });
    fails([](auto& q) { q.n_group = 2; });
  }
}

TEST(SiluMul, ComputesTheRowsOfARangeOnly) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    Threads pool(3);
    const Values x = random_values(DType::kF32, {40, 26}, 9);
    Values whole(DType::kBF16, {40, 13}), some(DType::kBF16, {40, 13}), range(DType::kI32, {3});
    ASSERT_TRUE(silu_mul({x.view(), whole.view(), {}}, pool.stream()).ok());
    range.at<int32_t>(0) = 7, range.at<int32_t>(1) = 9, range.at<int32_t>(2) = 31;
    ASSERT_TRUE(silu_mul({x.view(), some.view(), range.view()}, pool.stream()).ok());
    const Values untouched(DType::kBF16, {40, 13});
    for (int64_t t = 0; t < 40; ++t) EXPECT_EQ(some.row(t), (t >= 7 && t < 31 ? whole : untouched).row(t)) << t;
    for (const int bad : {41, 6, -1}) {
      range.at<int32_t>(2) = bad;
      EXPECT_FALSE(silu_mul({x.view(), some.view(), range.view()}, pool.stream()).ok());
    }
  }
}

// Every row of `sorted` is that of its token, inside its expert's rows and after those of earlier tokens.
void expect_stable(Values& ids, Values& offsets, Values& row_of, const Values& x, const Values& sorted) {
  const int64_t tokens = ids.view().dim[0], top_k = ids.view().dim[1];
  std::vector<int> seen(static_cast<size_t>(tokens * top_k), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < top_k; ++j) {
      const int32_t e = ids.at<int32_t>(t, j), r = row_of.at<int32_t>(t, j);
      EXPECT_GE(r, offsets.at<int32_t>(e));
      EXPECT_LT(r, offsets.at<int32_t>(e + 1));
      EXPECT_EQ(sorted.row(r), x.row(t));
      ++seen[static_cast<size_t>(r)];
      for (int64_t u = 0; u < t; ++u) {
        for (int64_t i = 0; i < top_k; ++i) {
          if (ids.at<int32_t>(u, i) == e) {
            EXPECT_LT(row_of.at<int32_t>(u, i), r);
          }
        }
      }
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), tokens * top_k);
}

// Without a shared expert, with a plain one and a gated one; gated, of bfloat16 results.
void expect_combined(DType type, const Values& y, Values& row_of, const Values& w, Threads& pool) {
  const int64_t tokens = w.view().dim[0], top_k = w.view().dim[1], width = y.view().dim[1];
  const Values narrow = random_values(DType::kBF16, {tokens * top_k, width}, 5),
               shared = random_values(type, {tokens, width}, 6), gate = random_values(DType::kF32, {tokens}, 8);
  for (const int form : {0, 1, 2, 3}) {
    const Values& from = form == 3 ? narrow : y;
    Values out(type, {tokens, width});
    MoeCombineParams c{from.view(), row_of.view(), w.view(), {}, {}, out.view()};
    if (form > 0) c.shared = shared.view();
    if (form > 1) c.shared_gate = gate.view();
    ASSERT_TRUE(moe_combine(c, pool.stream()).ok());
    Worst worst;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < top_k; ++j) {
          sum += static_cast<double>(w.get(t, j)) * static_cast<double>(from.get(row_of.at<int32_t>(t, j), i));
        }
        const double g = form > 1 ? 1.0 / (1.0 + std::exp(-static_cast<double>(gate.get(t)))) : 1.0;
        if (form > 0) sum += g * static_cast<double>(shared.get(t, i));
        worst.add(out.get(t, i), sum);
      }
    }
    EXPECT_LE(worst.relative(), tolerance(type));
  }
}

TEST(MoePermute, SortsStablyAndCombineAddsInRankOrder) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Threads pool(3);
      const int64_t tokens = 50, top_k = 3, width = 37;
      const int experts = 9;
      const Values x = random_values(type, {tokens, width}, 3);
      Values ids(DType::kI32, {tokens, top_k}), offsets(DType::kI32, {experts + 1}),
          row_of(DType::kI32, {tokens, top_k});
      Values sorted(type, {tokens * top_k, width});
      std::mt19937 random(4);
      for (int64_t t = 0; t < tokens; ++t) {
        int32_t all[] = {0, 1, 2, 3, 5, 6, 7, 8};  // expert 4 stays empty
        std::shuffle(all, all + 8, random);
        for (int64_t j = 0; j < top_k; ++j) ids.at<int32_t>(t, j) = all[j];
      }
      MoePermuteParams p{x.view(), ids.view(), experts, offsets.view(), row_of.view(), sorted.view()};
      ASSERT_TRUE(moe_permute(p, pool.stream()).ok());
      EXPECT_EQ(offsets.at<int32_t>(0), 0);
      EXPECT_EQ(offsets.at<int32_t>(experts), tokens * top_k);
      EXPECT_EQ(offsets.at<int32_t>(4), offsets.at<int32_t>(5));
      expect_stable(ids, offsets, row_of, x, sorted);
      const Values y = random_values(type, {tokens * top_k, width}, 5);
      const Values w = random_values(DType::kF32, {tokens, top_k}, 7);
      expect_combined(type, y, row_of, w, pool);
      ids.at<int32_t>(3, 1) = experts;
      EXPECT_FALSE(moe_permute(p, pool.stream()).ok());
      ids.at<int32_t>(3, 1) = -1;
      EXPECT_FALSE(moe_permute(p, pool.stream()).ok());
      row_of.at<int32_t>(2, 2) = static_cast<int32_t>(tokens * top_k);
      Values out(type, {tokens, width});
      EXPECT_FALSE(moe_combine({y.view(), row_of.view(), w.view(), {}, {}, out.view()}, pool.stream()).ok());
    }
  }
}

TEST(Backend, RefusesAbsentDevices) {
  EXPECT_EQ(find_backend(device::DeviceKind::kCuda), nullptr);
  Values gate_up(DType::kF32, {1, 16}), out(DType::kF32, {1, 8});
  const SiluMulParams product{gate_up.view(), out.view(), {}};
  const device::Stream absent{device::DeviceKind::kCuda, nullptr, nullptr};
  const Status s = silu_mul(product, absent);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kUnsupported);
  // A registered table is used from then on.
  static Backend mine;
  mine.silu_mul = [](const SiluMulParams&, device::Stream) {
    return Status(make_error(ErrorCode::kUnavailable, "mine"));
  };
  register_backend(device::DeviceKind::kCuda, &mine);
  EXPECT_EQ(silu_mul(product, absent).error().message, "mine");
  EXPECT_EQ(rms_norm({}, absent).error().code, ErrorCode::kUnsupported);
  register_backend(device::DeviceKind::kCuda, nullptr);
}

}  // namespace
}  // namespace tern::ops
