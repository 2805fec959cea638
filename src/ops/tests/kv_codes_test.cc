// A quantized cache on the CPU: what is written, and attention over it.
#include <cmath>
#include <limits>

#include "ops/rope.h"
#include "ops/tests/paged.h"

namespace tern::ops {
namespace {

constexpr DType kCodes[] = {DType::kI8, DType::kF8E4M3};

float scale_for(const Case& c) { return 1.0f / std::sqrt(static_cast<float>(c.dim)); }

// Root mean square of differences, and of the wanted values.
struct Rms {
  double difference = 0, wanted = 0;
  void add(double got, double want) { difference += (got - want) * (got - want), wanted += want * want; }
  double relative() const { return std::sqrt(difference / wanted); }
};

// Against the oracle over the same codes, and how much further from the unquantized result than that oracle.
void check_case(const Case& c, int threads) {
  SCOPED_TRACE(std::string(type_name(c.type)) + " over " + dtype_name(c.cache) + " heads " + std::to_string(c.heads) +
               "/" + std::to_string(c.kv_heads) + " D " + std::to_string(c.dim) + " block " + std::to_string(c.block));
  Threads pool(threads);
  Paged paged(c, 11);
  paged.write(pool.stream());
  const Values out = run_attention(c, paged, pool.stream(), c.type);
  Worst worst;
  Rms ours, oracles;
  int64_t row = 0;
  for (size_t r = 0; r < c.queries.size(); ++r) {
    for (int i = 0; i < c.queries[r]; ++i, ++row) {
      if (c.queries[r] > 40 && i % 17 != 0) continue;  // the oracle is slow
      for (int h = 0; h < c.heads; ++h) {
        const int p = c.context[r] - c.queries[r] + i;
        const auto want = paged.oracle(r, p, h, scale_for(c)), exact = paged.oracle(r, p, h, scale_for(c), true);
        for (int d = 0; d < c.dim; ++d) {
          const auto at = static_cast<size_t>(d);
          worst.add(out.get(row, h * c.dim + d), want[at]);
          ours.add(static_cast<double>(out.get(row, h * c.dim + d)), exact[at]);
          oracles.add(want[at], exact[at]);
        }
      }
    }
  }
  EXPECT_LE(worst.relative(), c.type == DType::kF32 ? 3e-6 : 8e-3);
  EXPECT_LE(ours.relative(), 1.25 * oracles.relative());
  EXPECT_LE(oracles.relative(), c.cache == DType::kI8 ? 0.02 : 0.06);
}

TEST(KvCodes, AttentionMatchesDoubleForEveryInstructionSet) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      for (const DType cache : kCodes) {
        check_case({type, 4, 2, 64, 64, {1, 64, 65, 130}, {1, 64, 1, 7}, cache}, 2);
        check_case({type, 3, 3, 32, 16, {5, 33}, {5, 2}, cache}, 1);
        check_case({type, 5, 1, 80, 32, {47, 200}, {3, 1}, cache}, 3);
        check_case({type, 8, 2, 128, 64, {70, 9}, {70, 1}, cache}, 2);
        check_case({type, 2, 2, 96, 80, {161}, {1}, cache}, 4);
        check_case({type, 7, 1, 16, 128, {600}, {30}, cache}, 2);
        check_case({type, 2, 1, 256, 64, {1030}, {1}, cache}, 2);
      }
    }
  }
}

TEST(KvCodes, TokensDoNotDependOnTheBatch) {
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const DType cache : kCodes) {
      const Case all{DType::kBF16, 6, 2, 48, 32, {700, 64, 1090}, {700, 64, 40}, cache};
      Threads one(1);
      Paged paged(all, 5);
      paged.write(one.stream());
      const Values whole = run_attention(all, paged, one.stream(), all.type);
      Threads three(3);
      const Values again = run_attention(all, paged, three.stream(), all.type);
      for (int64_t t = 0; t < 804; ++t) ASSERT_EQ(again.row(t), whole.row(t)) << t;
      for (const int position : {0, 1, 31, 32, 63, 300, 511, 512, 513, 699}) {
        for (const int chunk : {1, 3, 30}) {
          if (chunk > position + 1) continue;
          Case cut = all;
          cut.context = {position + 1, 0, 0}, cut.queries = {chunk, 0, 0};
          for (const int threads : {1, 4}) {
            Threads pool(threads);
            const Values alone = run_attention(cut, paged, pool.stream(), all.type);
            ASSERT_EQ(alone.row(chunk - 1), whole.row(position))
                << position << " chunk " << chunk << " threads " << threads;
          }
        }
      }
    }
  }
}

// Codes are the nearest ones of what was written, at scales that the largest value of a head gives; every instruction
// set and any number of threads leave the same bytes.
TEST(KvCodes, WritesTheNearestCodes) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const DType cache : kCodes) {
      const Case c{type, 2, 2, 48, 16, {37, 3}, {1, 1}, cache};
      std::string first;
      for (const auto isa : available_isas()) {
        const UseIsa use(isa);
        for (const int threads : {1, 3}) {
          Threads pool(threads);
          Paged paged(c, 21);
          paged.write(pool.stream());
          const KvLayerView view = paged.cache();
          const std::string bytes(view.base, 5 * view.block_stride);
          if (first.empty()) first = bytes;
          EXPECT_EQ(bytes, first) << isa_name(isa) << " threads " << threads;
          for (int t = 0; t < 37; ++t) {
            for (int part = 0; part < 4; ++part) {
              double top = 0;
              for (int d = 0; d < 48; ++d) top = std::max(top, std::abs(paged.written(0, t, part, d)));
              for (int d = 0; d < 48; ++d) {
                const double v = paged.written(0, t, part, d), off = std::abs(paged.cached(0, t, part, d) - v);
                const double step = cache == DType::kI8 ? top / 127 / 2 : std::max(std::abs(v) / 16, top / 448 / 1024);
                ASSERT_LE(off, step * 1.0001) << t << " " << part << " " << d;
              }
            }
          }
        }
      }
    }
  }
}

// Scales that are known before: of heads they are what tokens get, of channels they stay outside the blocks.
TEST(KvCodes, KnownScales) {
  for (const DType cache : kCodes) {
    Case c{DType::kF32, 4, 2, 32, 16, {50}, {9}, cache};
    const float bound = cache == DType::kI8 ? 127.0f : 448.0f;
    const std::vector<float> heads = {4.0f / bound, 5.0f / bound};
    std::vector<float> channels(64);
    for (size_t i = 0; i < channels.size(); ++i) channels[i] = (3.5f + 0.02f * static_cast<float>(i)) / bound;
    for (const bool by_channel : {false, true}) {
      const auto& scales = by_channel ? channels : heads;
      for (const DType type : {DType::kF32, DType::kBF16}) {
        c.type = type;
        Threads pool(2);
        Paged paged(c, 31);
        paged.set_scales({scales.data(), scales.data(), by_channel});
        paged.write(pool.stream());
        if (!by_channel) {
          const KvLayerView view = paged.cache();
          const auto block = static_cast<size_t>(paged.table().as<const int32_t>()[0]);
          const char* memory = view.base + block * view.block_stride;
          EXPECT_EQ(*reinterpret_cast<const float*>(memory + view.spec.scales_offset()), heads[0]);
        }
        const Values out = run_attention(c, paged, pool.stream(), type);
        Worst worst;
        for (int i = 0; i < 9; ++i) {
          for (int h = 0; h < 4; ++h) {
            const auto want = paged.oracle(0, 41 + i, h, scale_for(c));
            for (int d = 0; d < 32; ++d) worst.add(out.get(i, h * 32 + d), want[static_cast<size_t>(d)]);
          }
        }
        EXPECT_LE(worst.relative(), type == DType::kF32 ? 3e-6 : 1e-2);
      }
    }
  }
}

// A zero head has scale zero and stays zero; infinite values and NaN make their token's scale NaN.
TEST(KvCodes, ZeroAndInfiniteHeads) {
  for (const DType cache : kCodes) {
    KvSpec spec;
    spec.arrangement = KvArrangement::kCpuPacked, spec.dtype = cache, spec.layers = 1, spec.kv_heads = 1;
    spec.head_dim_k = spec.head_dim_v = 16, spec.block_size = 16;
    std::vector<char> memory(2 * spec.layer_block_bytes(), 0x55);
    Values x(DType::kF32, {3, 48}), q(DType::kBF16, {3, 16});
    x.set(std::numeric_limits<float>::infinity(), 1, 20);
    x.set(std::numeric_limits<float>::quiet_NaN(), 2, 40);
    const Values slots = slot_values({16, 17, 18});
    QkvPrepareParams p;
    p.qkv = x.view(), p.heads = p.kv_heads = 1, p.head_dim = 16, p.slot_mapping = slots.view(), p.q = q.view();
    p.cache = {memory.data(), spec.layer_block_bytes(), spec};
    Threads pool(1);
    ASSERT_TRUE(qkv_prepare(p, pool.stream()).ok());
    const char* block = memory.data() + spec.layer_block_bytes();
    const auto* k = reinterpret_cast<const float*>(block + spec.scales_offset());
    EXPECT_EQ(k[0], 0.0f);
    EXPECT_EQ(k[16], 0.0f);
    EXPECT_TRUE(std::isnan(k[1]));
    EXPECT_EQ(k[17], 0.0f);
    EXPECT_EQ(k[2], 0.0f);
    EXPECT_TRUE(std::isnan(k[18]));
    for (int d = 0; d < 16; ++d) EXPECT_EQ(block[d / 4 * 64 + d % 4], 0);
    // What a quantized cache cannot have.
    const auto fails = [&](auto&& change) {
      QkvPrepareParams bad = p;
      change(bad);
      EXPECT_FALSE(qkv_prepare(bad, pool.stream()).ok());
    };
    fails([](auto& bad) { bad.q = {}; });
    fails([](auto& bad) { bad.cache.spec.dtype = DType::kI32; });
    fails([](auto& bad) { bad.cache.spec.block_size = 8; });
  }
}

}  // namespace
}  // namespace tern::ops
