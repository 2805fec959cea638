// Norms, activations, rotation, cache writes, embeddings: against plain double arithmetic, for every instruction set.
#include <functional>

#include "device/tests/kv_plain.h"
#include "ops/activation.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

double rounded(double v, DType type) {
  return type == DType::kBF16 ? static_cast<double>(to_float(to_bf16(static_cast<float>(v)))) : v;
}

TEST(RmsNorm, MatchesDouble) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const int64_t n : {1, 7, 8, 15, 16, 33, 128, 1000}) {
        for (const bool with_residual : {false, true}) {
          Threads pool(2);
          const Values x = random_values(type, {5, n}, 1, 2.0f, 3);
          const Values w = random_values(n % 2 == 0 ? DType::kF32 : type, {n}, 2);
          const Values before = random_values(type, {5, n}, 3, 1.0f, 1);
          Values residual = before, out(type, {5, n}, 2);
          RmsNormParams p{x.view(), {}, w.view(), out.view(), 1e-5f};
          TensorView r = before.view();
          r.data = residual.view().data;
          std::vector<char> copy(static_cast<size_t>(r.stride[0] * 5) * dtype_bytes(type));
          std::memcpy(copy.data(), before.view().data, copy.size());
          r.data = copy.data();
          if (with_residual) p.residual = r;
          ASSERT_TRUE(rms_norm(p, pool.stream()).ok());
          Worst worst;
          for (int64_t t = 0; t < 5; ++t) {
            std::vector<double> v(static_cast<size_t>(n));
            double square = 0;
            for (int64_t i = 0; i < n; ++i) {
              double e = static_cast<double>(x.get(t, i));
              if (with_residual) {
                e = rounded(static_cast<double>(before.get(t, i)) + e, type);
                const char* at = copy.data() + (t * r.stride[0] + i) * static_cast<int64_t>(dtype_bytes(type));
                const float got = type == DType::kBF16 ? to_float(*reinterpret_cast<const bf16*>(at))
                                                       : *reinterpret_cast<const float*>(at);
                EXPECT_FLOAT_EQ(got, static_cast<float>(e));
              }
              v[static_cast<size_t>(i)] = e;
              square += e * e;
            }
            const double scale = 1.0 / std::sqrt(square / static_cast<double>(n) + 1e-5);
            for (int64_t i = 0; i < n; ++i) {
              worst.add(out.get(t, i),
                        rounded(v[static_cast<size_t>(i)] * scale, type) * static_cast<double>(w.get(i)));
            }
          }
          // Two roundings in bf16: a value beside a rounding border may fall to the other side.
          EXPECT_LE(worst.relative(), type == DType::kF32 ? 2e-6 : 8e-3) << n;
        }
      }
    }
  }
}

TEST(RmsNorm, HeadsInPlaceAndMixedTypes) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    Threads pool(1);
    const Values x = random_values(DType::kF32, {3, 4, 24}, 4);
    const Values w = random_values(DType::kBF16, {24}, 5);
    Values out(DType::kF32, {3, 4, 24}), narrow(DType::kBF16, {3, 4, 24});
    ASSERT_TRUE(rms_norm({x.view(), {}, w.view(), out.view(), 1e-6f}, pool.stream()).ok());
    ASSERT_TRUE(rms_norm({x.view(), {}, w.view(), narrow.view(), 1e-6f}, pool.stream()).ok());
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t h = 0; h < 4; ++h) {
        double square = 0;
        for (int64_t i = 0; i < 24; ++i) square += std::pow(static_cast<double>(x.get(t, h, i)), 2);
        for (int64_t i = 0; i < 24; ++i) {
          const double want =
              static_cast<double>(x.get(t, h, i)) / std::sqrt(square / 24 + 1e-6) * static_cast<double>(w.get(i));
          EXPECT_NEAR(out.get(t, h, i), want, 1e-5);
          EXPECT_FLOAT_EQ(narrow.get(t, h, i), to_float(to_bf16(out.get(t, h, i))));
        }
      }
    }
  }
  Threads pool(1);
  Values x(DType::kF32, {3, 8}), w(DType::kF32, {7}), ids(DType::kI32, {8});
  EXPECT_FALSE(rms_norm({x.view(), {}, w.view(), x.view(), 1e-6f}, pool.stream()).ok());
  EXPECT_FALSE(rms_norm({x.view(), {}, ids.view(), x.view(), 1e-6f}, pool.stream()).ok());
  EXPECT_FALSE(rms_norm({x.view(), {}, x.view(), x.view(), 1e-6f}, pool.stream()).ok());
  Values w8(DType::kF32, {8});
  EXPECT_TRUE(rms_norm({x.view().first(0), {}, w8.view(), x.view().first(0), 1e-6f}, pool.stream()).ok());
  EXPECT_FALSE(rms_norm({x.view(), x.view().first(2), w8.view(), x.view(), 1e-6f}, pool.stream()).ok());
}

TEST(SiluMul, MatchesDouble) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const int64_t n : {1, 9, 16, 100, 9000}) {
        Threads pool(2);
        Values x = random_values(type, {n == 9000 ? 1 : 3, 2 * n}, 6, 4.0f);
        x.set(-120.0f, 0, 0);
        Values out(type, {x.view().dim[0], n});
        ASSERT_TRUE(silu_mul({x.view(), out.view()}, pool.stream()).ok());
        Worst worst;
        for (int64_t t = 0; t < x.view().dim[0]; ++t) {
          for (int64_t i = 0; i < n; ++i) {
            const double g = static_cast<double>(x.get(t, i));
            worst.add(out.get(t, i), rounded(g / (1.0 + std::exp(-g)), type) * static_cast<double>(x.get(t, n + i)));
          }
        }
        EXPECT_LE(worst.relative(), type == DType::kF32 ? 1e-6 : 8e-3);
      }
    }
  }
  Threads pool(1);
  Values x(DType::kF32, {2, 8}), out(DType::kF32, {2, 5});
  EXPECT_FALSE(silu_mul({x.view(), out.view()}, pool.stream()).ok());
  EXPECT_TRUE(silu_mul({x.view().first(0), out.view().columns(0, 4).first(0)}, pool.stream()).ok());
}

Values make_table(int64_t rows, int64_t half, bool cosine) {
  Values v(DType::kF32, {rows, half});
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t * 3 + 1) * std::pow(10.0, -2.0 * static_cast<double>(i) / 32);
      v.set(static_cast<float>(cosine ? std::cos(angle) : std::sin(angle)), t, i);
    }
  }
  return v;
}

// The rotated head in double.
std::vector<double> rotate(const std::function<double(int64_t)>& x, int64_t dim, int64_t half, RopeStyle style,
                           const Values& cos, const Values& sin, int64_t t) {
  std::vector<double> y(static_cast<size_t>(dim));
  for (int64_t i = 0; i < dim; ++i) y[static_cast<size_t>(i)] = x(i);
  for (int64_t i = 0; i < half; ++i) {
    const int64_t a = style == RopeStyle::kInterleaved ? 2 * i : i,
                  b = style == RopeStyle::kInterleaved ? 2 * i + 1 : i + half;
    const double c = static_cast<double>(cos.get(t, i)), s = static_cast<double>(sin.get(t, i));
    y[static_cast<size_t>(a)] = x(a) * c - x(b) * s;
    y[static_cast<size_t>(b)] = x(b) * c + x(a) * s;
  }
  return y;
}

TEST(Rope, BothStylesFullAndPartial) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
        for (const int64_t half : {4, 20, 32, 48}) {
          Threads pool(2);
          const int64_t dim = 96;
          Values x = random_values(type, {3, 2, dim}, 9);
          const Values before = random_values(type, {3, 2, dim}, 9), cos = make_table(3, half, true),
                       sin = make_table(3, half, false);
          ASSERT_TRUE(rope({x.view(), cos.view(), sin.view(), style}, pool.stream()).ok());
          Worst worst;
          for (int64_t t = 0; t < 3; ++t) {
            for (int64_t h = 0; h < 2; ++h) {
              const auto want = rotate([&](int64_t i) { return static_cast<double>(before.get(t, h, i)); }, dim, half,
                                       style, cos, sin, t);
              for (int64_t i = 0; i < dim; ++i) {
                worst.add(x.get(t, h, i), want[static_cast<size_t>(i)]);
                if (i >= 2 * half) {
                  EXPECT_EQ(x.get(t, h, i), before.get(t, h, i));
                }
              }
            }
          }
          EXPECT_LE(worst.relative(), type == DType::kF32 ? 3e-7 : 4e-3);
        }
      }
    }
  }
  Threads pool(1);
  Values x(DType::kF32, {3, 2, 16});
  const Values wide = make_table(3, 9, true), few = make_table(2, 8, true);
  EXPECT_FALSE(rope({x.view(), wide.view(), wide.view(), RopeStyle::kHalfSplit}, pool.stream()).ok());
  EXPECT_FALSE(rope({x.view(), few.view(), few.view(), RopeStyle::kHalfSplit}, pool.stream()).ok());
}

TEST(RopeTable, EveryFrequencyReadsItsAxis) {
  Threads pool(2);
  const std::vector<int32_t> rows{0, 7, 131071, 0, 5, 9, 0, 2, 100000};
  Values positions(DType::kI32, {3, 3});
  std::memcpy(positions.view().data, rows.data(), rows.size() * 4);
  Values freq(DType::kF32, {4}), axis(DType::kU8, {4}), cos(DType::kF32, {3, 4}), sin(DType::kF32, {3, 4});
  const uint8_t axes[] = {0, 1, 2, 1};
  for (int i = 0; i < 4; ++i) freq.set(static_cast<float>(std::pow(0.3, i)), i), axis.at<uint8_t>(i) = axes[i];
  const RopeTableParams p{positions.view(), freq.view(), axis.view(), 1.5f, cos.view(), sin.view()};
  ASSERT_TRUE(rope_table(p, pool.stream()).ok());
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t i = 0; i < 4; ++i) {
      const float angle = static_cast<float>(rows[static_cast<size_t>(axes[i] * 3 + t)]) * freq.get(i);
      EXPECT_FLOAT_EQ(cos.get(t, i), static_cast<float>(1.5 * std::cos(static_cast<double>(angle))));
      EXPECT_FLOAT_EQ(sin.get(t, i), static_cast<float>(1.5 * std::sin(static_cast<double>(angle))));
    }
  }
  axis.at<uint8_t>(3) = 3;
  EXPECT_FALSE(rope_table(p, pool.stream()).ok());
}

struct QkvCase {
  DType type;
  bool norm, rotate;
  RopeStyle style;
  int threads;
};

// Every piece of qkv_prepare against the separate ops and an exported block; the null block stays untouched.
void check_qkv(const QkvCase& c) {
  const int heads = 3, kv = 2, dim = 40, block = 16, tokens = 45;
  Threads pool(c.threads), one(1);
  KvSpec spec;
  spec.arrangement = KvArrangement::kCpuPacked, spec.dtype = c.type, spec.layers = 1, spec.kv_heads = kv;
  spec.head_dim_k = spec.head_dim_v = dim, spec.block_size = block;
  const size_t bytes = spec.layer_block_bytes();
  std::vector<char> memory(6 * bytes, 0x5a);
  Values x = random_values(c.type, {tokens, (heads + 2 * kv) * dim}, 10, 1.0f, 4);
  Values want = random_values(c.type, {tokens, (heads + 2 * kv) * dim}, 10, 1.0f, 4);
  const Values qn = random_values(c.type, {dim}, 11), kn = random_values(DType::kF32, {dim}, 12);
  const Values cos = make_table(tokens, 12, true), sin = make_table(tokens, 12, false);
  // Runs inside blocks, jumps, and padding rows in the null block.
  std::vector<int64_t> slots;
  for (int t = 0; t < tokens; ++t)
    slots.push_back(t % 11 == 10 ? t % block : (t < 20 ? 5 * block - 20 + t : 2 * block + t - 20));
  const Values slot = slot_values(slots);
  QkvPrepareParams p;
  p.qkv = x.view(), p.heads = heads, p.kv_heads = kv, p.head_dim = dim, p.style = c.style;
  p.cache = {memory.data(), bytes, spec};
  p.slot_mapping = slot.view();
  if (c.norm) p.q_norm = qn.view(), p.k_norm = kn.view();
  if (c.rotate) p.cos = cos.view(), p.sin = sin.view();
  Values apart(c.type, {tokens, heads * dim});
  p.q = apart.view();
  ASSERT_TRUE(qkv_prepare(p, pool.stream()).ok());

  const TensorView q = want.view().columns(0, heads * dim).split(heads, dim);
  const TensorView k = want.view().columns(heads * dim, (heads + kv) * dim).split(kv, dim);
  if (c.norm) {
    ASSERT_TRUE(rms_norm({q, {}, qn.view(), q, p.eps}, one.stream()).ok());
    ASSERT_TRUE(rms_norm({k, {}, kn.view(), k, p.eps}, one.stream()).ok());
  }
  if (c.rotate) {
    ASSERT_TRUE(rope({q, cos.view(), sin.view(), c.style}, one.stream()).ok());
    ASSERT_TRUE(rope({k, cos.view(), sin.view(), c.style}, one.stream()).ok());
  }
  std::vector<std::vector<char>> plain(6, std::vector<char>(bytes));
  for (size_t b = 1; b < 6; ++b) device::kv_to_plain(spec, memory.data() + b * bytes, plain[b].data());
  const size_t e = dtype_bytes(c.type);
  for (int t = 0; t < tokens; ++t) {
    ASSERT_EQ(x.row(t), want.row(t)) << t;
    const size_t q_bytes = static_cast<size_t>(heads * dim) * e;
    ASSERT_EQ(std::memcmp(apart.view().row_bytes(t), want.view().row_bytes(t), q_bytes), 0) << t;
    const int64_t s = slots[static_cast<size_t>(t)];
    if (s < block) continue;
    for (int part = 0; part < 2 * kv; ++part) {
      const char* got = plain[static_cast<size_t>(s / block)].data() +
                        static_cast<size_t>(part * block * dim + static_cast<int>(s % block) * dim) * e;
      const char* from = want.view().row_bytes(t) + static_cast<size_t>((heads + part) * dim) * e;
      ASSERT_EQ(std::memcmp(got, from, static_cast<size_t>(dim) * e), 0) << "token " << t << " part " << part;
    }
  }
  for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory[i], 0x5a) << "the null block was written";
}

TEST(QkvPrepare, EqualsItsParts) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : kTypes) {
      for (const int threads : {1, 3}) {
        check_qkv({type, true, true, RopeStyle::kHalfSplit, threads});
        check_qkv({type, false, true, RopeStyle::kInterleaved, threads});
        check_qkv({type, true, false, RopeStyle::kHalfSplit, threads});
        check_qkv({type, false, false, RopeStyle::kHalfSplit, threads});
      }
    }
  }
}

TEST(QkvPrepare, RefusesWhatDoesNotFit) {
  Threads pool(1);
  KvSpec spec;
  spec.arrangement = KvArrangement::kCpuPacked, spec.dtype = DType::kF32, spec.layers = 1, spec.kv_heads = 1;
  spec.head_dim_k = spec.head_dim_v = 16, spec.block_size = 16;
  std::vector<char> memory(2 * spec.layer_block_bytes());
  Values x(DType::kF32, {2, 64});
  const Values slots = slot_values({16, 17}), norm = random_values(DType::kF32, {15}, 1);
  QkvPrepareParams good;
  good.qkv = x.view(), good.heads = 2, good.kv_heads = 1, good.head_dim = 16;
  good.cache = {memory.data(), spec.layer_block_bytes(), spec}, good.slot_mapping = slots.view();
  ASSERT_TRUE(qkv_prepare(good, pool.stream()).ok());
  auto fails = [&](auto&& change) {
    QkvPrepareParams p = good;
    change(p);
    EXPECT_FALSE(qkv_prepare(p, pool.stream()).ok());
  };
  fails([](auto& p) { p.heads = 3; });
  fails([&](auto& p) { p.q = x.view(); });
  fails([](auto& p) { p.head_dim = 12; });
  fails([](auto& p) { p.kv_heads = 0; });
  fails([&](auto& p) { p.q_norm = norm.view(); });
  fails([](auto& p) { p.cache.base = nullptr; });
  fails([](auto& p) { p.cache.spec.block_size = 8; });
  fails([](auto& p) { p.cache.spec.arrangement = KvArrangement::kHeadsKV; });
  fails([&](auto& p) { p.slot_mapping = slots.view().first(1); });
  fails([](auto& p) { p.cache.block_stride = 8; });
}

TEST(Embedding, RowsOfBothTypes) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    Threads pool(2);
    for (const DType from : kTypes) {
      for (const DType to : kTypes) {
        const Values table = random_values(from, {10, 21}, 13, 1.0f, 2);
        const Values ids = int_values({9, 0, 3, 3});
        Values out(to, {4, 21});
        ASSERT_TRUE(embedding({table.view(), ids.view(), out.view()}, pool.stream()).ok());
        const int32_t id[] = {9, 0, 3, 3};
        for (int64_t t = 0; t < 4; ++t) {
          for (int64_t i = 0; i < 21; ++i) {
            const float v = table.get(id[t], i);
            EXPECT_EQ(out.get(t, i), to == DType::kBF16 ? to_float(to_bf16(v)) : v);
          }
        }
        const Values bad = int_values({9, 0, 10, 3}), negative = int_values({9, 0, -1, 3});
        EXPECT_FALSE(embedding({table.view(), bad.view(), out.view()}, pool.stream()).ok());
        EXPECT_FALSE(embedding({table.view(), negative.view(), out.view()}, pool.stream()).ok());
        EXPECT_TRUE(embedding({table.view(), ids.view().first(0), out.view().first(0)}, pool.stream()).ok());
      }
    }
  }
}

TEST(Embedding, ResolveAndGather) {
  Threads pool(1);
  Values ids = int_values({1, 2, 3, 4});
  const Values source = int_values({-1, 2, -1, 0}), previous = int_values({70, 71, 72});
  ASSERT_TRUE(resolve_ids({ids.view(), source.view(), previous.view()}, pool.stream()).ok());
  const int32_t want[] = {1, 72, 3, 70};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ids.at<int32_t>(i), want[i]);
  const Values beyond = int_values({-1, 3, -1, 0}), none = int_values({-1, -1, -1, -1});
  EXPECT_FALSE(resolve_ids({ids.view(), beyond.view(), previous.view()}, pool.stream()).ok());
  EXPECT_TRUE(resolve_ids({ids.view(), none.view(), {}}, pool.stream()).ok());
  Values list = int_values({5, 80, -1, 90, 0, 91}), places = int_values({1, 2, 3, 4, 5, 6});
  const TensorView changes = tensor2(list.view().data, DType::kI32, 3, 2);
  const TensorView table = tensor2(places.view().data, DType::kI32, 2, 3);
  ASSERT_TRUE(resolve_ids({ids.view(), none.view(), {}, changes, table}, pool.stream()).ok());
  const int32_t changed[] = {91, 2, 3, 4, 5, 80};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(places.at<int32_t>(i), changed[i]);
  EXPECT_FALSE(resolve_ids({ids.view(), none.view(), {}, changes, table.first(1)}, pool.stream()).ok());
  EXPECT_FALSE(resolve_ids({ids.view(), none.view(), {}, changes, {}}, pool.stream()).ok());
  const Values x = random_values(DType::kBF16, {5, 12}, 14), rows = int_values({4, 4, 0}), bad = int_values({4, 5, 0});
  Values out(DType::kBF16, {3, 12});
  ASSERT_TRUE(gather_rows({x.view(), rows.view(), out.view()}, pool.stream()).ok());
  EXPECT_EQ(out.row(0), x.row(4));
  EXPECT_EQ(out.row(1), x.row(4));
  EXPECT_EQ(out.row(2), x.row(0));
  EXPECT_FALSE(gather_rows({x.view(), bad.view(), out.view()}, pool.stream()).ok());
}

}  // namespace
}  // namespace tern::ops
