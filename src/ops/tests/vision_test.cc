// Ops of vision towers against plain double arithmetic, for every instruction set.
#include "ops/vision.h"

#include "ops/rope.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

double rounded(double v, DType type) {
  return type == DType::kBF16 ? static_cast<double>(to_float(to_bf16(static_cast<float>(v)))) : v;
}

TEST(LayerNorm, MatchesDouble) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const int64_t n : {1, 7, 16, 33, 72, 1152}) {
        for (const int residual_kind : {0, 1, 2}) {  // none, like x, float32
          const bool with_residual = residual_kind > 0;
          const DType sum = residual_kind == 2 ? DType::kF32 : type;
          Threads pool(2);
          Values x = random_values(type, {5, n}, 1, 2.0f, 3);
          for (int64_t i = 0; i < n; ++i) x.set(x.get(4, i) + 50.0f, 4, i);  // a mean far from zero
          const DType kept = n % 2 == 0 ? DType::kF32 : DType::kBF16;
          const Values w = random_values(kept, {n}, 2), b = random_values(kept, {n}, 5);
          const Values before = random_values(sum, {5, n}, 3);
          Values residual = random_values(sum, {5, n}, 3), out(type, {5, n}, 2);
          LayerNormParams p{x.view(), {}, w.view(), b.view(), out.view(), 1e-5f};
          if (with_residual) p.residual = residual.view();
          ASSERT_TRUE(layer_norm(p, pool.stream()).ok());
          Worst worst;
          for (int64_t t = 0; t < 5; ++t) {
            std::vector<double> v(static_cast<size_t>(n));
            double mean = 0, square = 0;
            for (int64_t i = 0; i < n; ++i) {
              auto& e = v[static_cast<size_t>(i)];
              e = static_cast<double>(x.get(t, i));
              if (with_residual) {
                e = rounded(static_cast<double>(before.get(t, i)) + e, sum);
                ASSERT_FLOAT_EQ(residual.get(t, i), static_cast<float>(e));
              }
              mean += e / static_cast<double>(n);
            }
            for (const double e : v) square += (e - mean) * (e - mean);
            const double scale = 1.0 / std::sqrt(square / static_cast<double>(n) + 1e-5);
            for (int64_t i = 0; i < n; ++i) {
              worst.add(out.get(t, i), (v[static_cast<size_t>(i)] - mean) * scale * static_cast<double>(w.get(i)) +
                                           static_cast<double>(b.get(i)));
            }
          }
          EXPECT_LE(worst.relative(), type == DType::kF32 ? 3e-5 : 4.5e-3) << n;
        }
      }
    }
  }
}

TEST(LayerNorm, RefusesWhatDoesNotFit) {
  Threads pool(1);
  Values x(DType::kF32, {3, 8}), w(DType::kF32, {8}), seven(DType::kF32, {7}), half(DType::kBF16, {8});
  EXPECT_TRUE(layer_norm({x.view(), {}, w.view(), w.view(), x.view()}, pool.stream()).ok());
  EXPECT_TRUE(layer_norm({x.view().first(0), {}, w.view(), w.view(), x.view().first(0)}, pool.stream()).ok());
  EXPECT_FALSE(layer_norm({x.view(), {}, seven.view(), w.view(), x.view()}, pool.stream()).ok());
  EXPECT_FALSE(layer_norm({x.view(), {}, w.view(), half.view(), x.view()}, pool.stream()).ok());
  EXPECT_FALSE(layer_norm({x.view(), {}, w.view(), {}, x.view()}, pool.stream()).ok());
  EXPECT_FALSE(layer_norm({x.view(), {}, w.view(), w.view(), x.view().first(2)}, pool.stream()).ok());
  EXPECT_FALSE(layer_norm({x.view(), x.view().first(2), w.view(), w.view(), x.view()}, pool.stream()).ok());
}

double oracle(double x, Activation kind) {
  switch (kind) {
    case Activation::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x / (1.0 + std::exp(-1.702 * x));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kNone:
      return x;
    default:
      return x / (1.0 + std::exp(-x));
  }
}

TEST(Activate, MatchesDouble) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const auto kind : {Activation::kGeluErf, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu,
                              Activation::kRelu, Activation::kNone}) {
        for (const int64_t n : {1, 9, 64, 4305}) {
          Threads pool(2);
          Values x = random_values(DType::kF32, {3, n}, 6, 3.0f, 1), out(type, {3, n}, 5);
          x.set(-300.0f, 0, 0), x.set(250.0f, 1, 0), x.set(0.0f, 2, 0);
          ASSERT_TRUE(activate({x.view(), out.view(), kind}, pool.stream()).ok());
          for (int64_t t = 0; t < 3; ++t) {
            for (int64_t i = 0; i < n; ++i) {
              const double want = oracle(static_cast<double>(x.get(t, i)), kind);
              const double near = type == DType::kF32 ? 1e-6 : 4e-3;
              ASSERT_NEAR(out.get(t, i), want, near * std::max(1.0, std::abs(want))) << x.get(t, i);
            }
          }
          // In place, and from bfloat16.
          Values same = x, narrow = random_values(DType::kBF16, {3, n}, 7), wide(DType::kF32, {3, n});
          TensorView in_place = same.view();
          in_place.data = x.view().data;
          ASSERT_TRUE(activate({in_place, in_place, kind}, pool.stream()).ok());
          ASSERT_TRUE(activate({narrow.view(), wide.view(), kind}, pool.stream()).ok());
          for (int64_t i = 0; i < n; ++i) {
            if (type == DType::kF32) {
              ASSERT_EQ(x.get(2, i), out.get(2, i));
            }
            ASSERT_NEAR(wide.get(1, i), oracle(static_cast<double>(narrow.get(1, i)), kind), 2e-6);
          }
        }
      }
    }
  }
  Threads pool(1);
  Values x(DType::kF32, {3, 8}), y(DType::kF32, {3, 9});
  EXPECT_FALSE(activate({x.view(), y.view(), Activation::kSilu}, pool.stream()).ok());
  EXPECT_FALSE(activate({x.view(), x.view(), static_cast<Activation>(9)}, pool.stream()).ok());
  EXPECT_TRUE(activate({x.view().first(0), x.view().first(0), Activation::kSilu}, pool.stream()).ok());
}

struct SegmentCase {
  DType type, product;
  int64_t heads, dim;
  std::vector<int32_t> lengths;
};

// q, k and v are parts of one fused row, as a tower has them.
void run_segments(const SegmentCase& c, const Values& fused, Values& out, int threads, TensorView cos = {},
                  TensorView sin = {}) {
  Threads pool(threads);
  const int64_t h = c.heads * c.dim, rows = fused.view().dim[0];
  std::vector<int32_t> starts{0};
  int32_t longest = 0;
  for (const int32_t n : c.lengths) starts.push_back(starts.back() + n), longest = std::max(longest, n);
  ASSERT_EQ(starts.back(), rows);
  const Values start = int_values(starts);
  std::vector<char> workspace(segment_attention_workspace(pool.stream(), rows, static_cast<int64_t>(c.lengths.size()),
                                                          static_cast<int>(c.heads), static_cast<int>(c.dim)) +
                              64);
  SegmentAttentionParams p;
  p.q = fused.view().columns(0, h).split(c.heads, c.dim);
  p.k = fused.view().columns(h, 2 * h).split(c.heads, c.dim);
  p.v = fused.view().columns(2 * h, 3 * h).split(c.heads, c.dim);
  p.starts = start.view(), p.out = out.view(), p.cos = cos, p.sin = sin;
  p.scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
  p.max_segment = longest, p.product = c.product, p.workspace = workspace.data();
  ASSERT_TRUE(segment_attention(p, pool.stream()).ok());
}

void check_segments(const SegmentCase& c) {
  int64_t rows = 0;
  for (const int32_t n : c.lengths) rows += n;
  const int64_t h = c.heads * c.dim;
  const Values fused = random_values(c.type, {rows, 3 * h}, 8, 1.5f, 4);
  Values out(c.type, {rows, h}, 8);
  run_segments(c, fused, out, 2);
  Worst worst;
  auto at = [&](int64_t t, int64_t i) { return rounded(static_cast<double>(fused.get(t, i)), c.product); };
  int64_t begin = 0;
  for (const int32_t n : c.lengths) {
    for (int64_t t = begin; t<begin + n; t += n> 100 ? 13 : 1) {
      for (int64_t head = 0; head < c.heads; ++head) {
        std::vector<double> p(static_cast<size_t>(n));
        double top = -1e300, sum = 0;
        for (int64_t u = 0; u < n; ++u) {
          double dot = 0;
          for (int64_t d = head * c.dim; d < (head + 1) * c.dim; ++d) dot += at(t, d) * at(begin + u, h + d);
          p[static_cast<size_t>(u)] = dot / std::sqrt(static_cast<double>(c.dim));
          top = std::max(top, p[static_cast<size_t>(u)]);
        }
        for (double& e : p) e = std::exp(e - top), sum += e;
        for (int64_t d = head * c.dim; d < (head + 1) * c.dim; ++d) {
          double want = 0;
          for (int64_t u = 0; u < n; ++u) want += p[static_cast<size_t>(u)] / sum * at(begin + u, 2 * h + d);
          worst.add(out.get(t, d), want);
        }
      }
    }
    begin += n;
  }
  EXPECT_LE(worst.relative(), c.type == DType::kF32 && c.product == DType::kF32 ? 5e-6 : 8e-3) << c.dim;
}

TEST(SegmentAttention, MatchesDouble) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const DType product : kTypes) {
        check_segments({type, product, 3, 72, {1, 64, 0, 65, 7}});
        check_segments({type, product, 2, 80, {130, 48, 49}});
        check_segments({type, product, 1, 8, {2}});
        check_segments({type, product, 2, 128, {0, 96}});
        // More tiles than are kept at a time.
        check_segments({type, product, 2, 16, std::vector<int32_t>(50, 3)});
      }
    }
  }
}

TEST(SegmentAttention, RotatesFirst) {
  const SegmentCase c{DType::kF32, DType::kBF16, 2, 72, {33, 40}};
  const Values cos = random_values(DType::kF32, {73, 36}, 1), sin = random_values(DType::kF32, {73, 36}, 2);
  const Values fused = random_values(DType::kF32, {73, 3 * 144}, 3),
               turned = random_values(DType::kF32, {73, 3 * 144}, 3);
  Threads pool(1);
  for (const int64_t part : {0, 1}) {
    const TensorView x = turned.view().columns(part * 144, (part + 1) * 144).split(2, 72);
    ASSERT_TRUE(rope({x, cos.view(), sin.view(), RopeStyle::kHalfSplit, {}}, pool.stream()).ok());
  }
  Values want(DType::kF32, {73, 144}), got(DType::kF32, {73, 144});
  run_segments(c, turned, want, 1);
  run_segments(c, fused, got, 2, cos.view(), sin.view());
  for (int64_t t = 0; t < 73; ++t) ASSERT_EQ(got.row(t), want.row(t)) << t;
}

TEST(SegmentAttention, NeighboursAndThreadsChangeNothing) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType product : kTypes) {
      SegmentCase all{DType::kF32, product, 2, 72, {33, 150, 1, 64}}, one = all;
      const Values fused = random_values(DType::kF32, {248, 3 * 144}, 9);
      Values packed(DType::kF32, {248, 144}), again(DType::kF32, {248, 144}), alone(DType::kF32, {150, 144}),
          part(DType::kF32, {150, 3 * 144});
      run_segments(all, fused, packed, 1);
      run_segments(all, fused, again, 3);
      for (int64_t t = 0; t < 150; ++t)
        std::memcpy(part.view().row_bytes(t), fused.view().row_bytes(33 + t), 3 * 144 * 4);
      one.lengths = {150};
      run_segments(one, part, alone, 2);
      for (int64_t t = 0; t < 248; ++t) ASSERT_EQ(packed.row(t), again.row(t)) << t;
      for (int64_t t = 0; t < 150; ++t) ASSERT_EQ(packed.row(33 + t), alone.row(t)) << t;
    }
  }
}

TEST(SegmentAttention, RefusesWhatDoesNotFit) {
  Threads pool(1);
  Values x(DType::kF32, {4, 2, 16}), odd(DType::kF32, {4, 2, 12}), out(DType::kF32, {4, 32});
  const Values whole = int_values({0, 4}), falls = int_values({0, 4, 3, 4}), less = int_values({0, 3});
  std::vector<char> workspace(segment_attention_workspace(pool.stream(), 4, 3, 2, 16));
  SegmentAttentionParams good;
  good.q = good.k = good.v = x.view(), good.starts = whole.view(), good.out = out.view();
  good.workspace = workspace.data();
  ASSERT_TRUE(segment_attention(good, pool.stream()).ok());
  auto fails = [&](auto&& change) {
    SegmentAttentionParams p = good;
    change(p);
    EXPECT_FALSE(segment_attention(p, pool.stream()).ok());
  };
  fails([&](auto& p) { p.starts = falls.view(); });
  fails([&](auto& p) { p.starts = less.view(); });
  fails([&](auto& p) { p.starts = {}; });
  fails([&](auto& p) { p.q = p.k = p.v = odd.view(); });
  fails([&](auto& p) { p.v = p.v.first(3); });
  fails([&](auto& p) { p.out = p.out.first(3); });
  fails([&](auto& p) { p.workspace = nullptr; });
  fails([&](auto& p) { p.product = DType::kI32; });
  const Values none = int_values({0}), empty = int_values({0, 0});
  for (const Values* s : {&none, &empty}) {
    SegmentAttentionParams p = good;
    p.q = p.k = p.v = x.view().first(0), p.out = out.view().first(0), p.starts = s->view();
    EXPECT_TRUE(segment_attention(p, pool.stream()).ok());
  }
}

TEST(Rows, TakeAndScatter) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      Threads pool(2);
      const Values x = random_values(from, {3, 21}, 10, 1.0f, 2);
      Values out = random_values(to, {5, 21}, 11), place = random_values(to, {5, 21}, 11);
      const Values kept = random_values(to, {5, 21}, 11);
      const Values rows = int_values({-1, 2, 0, -1, 2}), to_rows = int_values({4, -1, 0});
      ASSERT_TRUE(take_rows({x.view(), rows.view(), out.view()}, pool.stream()).ok());
      ASSERT_TRUE(scatter_rows({x.view(), to_rows.view(), place.view()}, pool.stream()).ok());
      auto same = [&](const Values& got, int64_t t, int64_t source) {
        for (int64_t i = 0; i < 21; ++i) {
          const float want = source < 0 ? kept.get(t, i) : x.get(source, i);
          EXPECT_EQ(got.get(t, i), to == DType::kBF16 ? to_float(to_bf16(want)) : want);
        }
      };
      const int64_t took[] = {-1, 2, 0, -1, 2}, put[] = {2, -1, -1, -1, 0};
      for (int64_t t = 0; t < 5; ++t) same(out, t, took[t]), same(place, t, put[t]);
      const Values beyond = int_values({-1, 3, 0, -1, 2}), far = int_values({5, -1, 0}), none = int_values({-1, -1});
      EXPECT_FALSE(take_rows({x.view(), beyond.view(), out.view()}, pool.stream()).ok());
      EXPECT_FALSE(take_rows({x.view(), rows.view(), out.view().first(4)}, pool.stream()).ok());
      EXPECT_FALSE(take_rows({{}, rows.view(), out.view()}, pool.stream()).ok());
      EXPECT_TRUE(take_rows({{}, none.view(), out.view().first(2)}, pool.stream()).ok());
      EXPECT_FALSE(scatter_rows({x.view(), far.view(), place.view()}, pool.stream()).ok());
      EXPECT_TRUE(scatter_rows({x.view().first(0), none.view().first(0), place.view()}, pool.stream()).ok());
    }
  }
}

TEST(Rows, Interpolated) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const int64_t n : {1, 20, 72, 1152}) {
        Threads pool(2);
        const Values table = random_values(type, {6, n}, 12, 1.0f, 3), before = random_values(DType::kF32, {3, n}, 13);
        Values out = random_values(DType::kF32, {3, n}, 13), rows(DType::kI32, {3, 4}), weights(DType::kF32, {3, 4});
        const int32_t row[] = {0, 1, 2, 3, 5, 5, 5, 5, 4, 0, 1, 5};
        for (int64_t i = 0; i < 12; ++i) {
          rows.at<int32_t>(i / 4, i % 4) = row[i];
          weights.set(static_cast<float>(i) * 0.125f - 0.25f, i / 4, i % 4);
        }
        const InterpolateRowsParams p{table.view(), rows.view(), weights.view(), out.view()};
        ASSERT_TRUE(interpolate_rows(p, pool.stream()).ok());
        Worst worst;
        for (int64_t t = 0; t < 3; ++t) {
          for (int64_t i = 0; i < n; ++i) {
            double want = static_cast<double>(before.get(t, i));
            for (int64_t j = 0; j < 4; ++j) {
              want += static_cast<double>(weights.get(t, j)) * static_cast<double>(table.get(row[t * 4 + j], i));
            }
            worst.add(out.get(t, i), want);
          }
        }
        EXPECT_LE(worst.relative(), 1e-6);
        rows.at<int32_t>(1, 1) = 6;
        EXPECT_FALSE(interpolate_rows(p, pool.stream()).ok());
        rows.at<int32_t>(1, 1) = -1;
        EXPECT_FALSE(interpolate_rows(p, pool.stream()).ok());
      }
    }
  }
}

}  // namespace
}  // namespace tern::ops
