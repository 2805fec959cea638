#include "ops/attention.h"

#include <algorithm>
#include <limits>

#include "ops/rope.h"
#include "ops/tests/paged.h"

namespace tern::ops {
namespace {

void check_case(const Case& c, int threads) {
  SCOPED_TRACE(std::string(type_name(c.type)) + " heads " + std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) +
               " D " + std::to_string(c.dim) + " block " + std::to_string(c.block));
  Threads pool(threads);
  Paged paged(c, 11);
  paged.write(pool.stream());
  const Values out = run_attention(c, paged, pool.stream(), c.type);
  Worst worst;
  int64_t row = 0;
  for (size_t r = 0; r < c.queries.size(); ++r) {
    for (int i = 0; i < c.queries[r]; ++i, ++row) {
      if (c.queries[r] > 40 && i % 17 != 0) continue;  // the oracle is slow
      for (int h = 0; h < c.heads; ++h) {
        const auto want =
            paged.oracle(r, c.context[r] - c.queries[r] + i, h, 1.0f / std::sqrt(static_cast<float>(c.dim)));
        for (int d = 0; d < c.dim; ++d) worst.add(out.get(row, h * c.dim + d), want[static_cast<size_t>(d)]);
      }
    }
  }
  // Probabilities are rounded to bf16 as in the eager reference, hence the wider bf16 tolerance.
  EXPECT_LE(worst.relative(), c.type == DType::kF32 ? 3e-6 : 8e-3);
}

TEST(Attention, MatchesDoubleForEveryInstructionSet) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      check_case({type, 4, 2, 64, 64, {1, 64, 65, 130}, {1, 64, 1, 7}}, 2);
      check_case({type, 3, 3, 32, 16, {5, 33}, {5, 2}}, 1);
      check_case({type, 5, 1, 80, 32, {47, 200}, {3, 1}}, 3);
      check_case({type, 8, 2, 128, 64, {70, 9}, {70, 1}}, 2);
      check_case({type, 2, 1, 72, 48, {100}, {20}}, 2);
      check_case({type, 2, 2, 96, 80, {161}, {1}}, 4);
      check_case({type, 7, 1, 8, 128, {600}, {30}}, 2);
    }
  }
}

TEST(Attention, LongContextsAcrossSegments) {
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      check_case({type, 2, 1, 32, 64, {1500, 513}, {1, 2}}, 4);
      check_case({type, 4, 4, 16, 16, {1100}, {50}}, 2);
      check_case({type, 50, 1, 16, 64, {70}, {2}}, 2);  // more heads in a group than one unit holds
      check_case({type, 1, 1, 256, 64, {1030}, {1}}, 2);
    }
  }
}

// The bits of a token depend neither on the chunk it comes in, nor on other sequences, nor on the threads.
TEST(Attention, TokensDoNotDependOnTheBatch) {
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      Case all{type, 6, 2, 48, 32, {700, 64, 1090}, {700, 64, 40}};
      Threads one(1);
      Paged paged(all, 5);
      paged.write(one.stream());
      const Values whole = run_attention(all, paged, one.stream(), type);
      for (const int threads : {1, 2, 3, 4}) {
        Threads pool(threads);
        const Values again = run_attention(all, paged, pool.stream(), type);
        for (int64_t t = 0; t < 804; ++t) ASSERT_EQ(again.row(t), whole.row(t)) << t << " threads " << threads;
      }
      // Alone, as a decode step or as the end of a shorter chunk. The context is cut after the token.
      for (const int position : {0, 1, 31, 32, 63, 64, 300, 511, 512, 513, 640, 699}) {
        for (const int chunk : {1, 3, 30}) {
          if (chunk > position + 1) continue;
          Case cut = all;
          cut.context = {position + 1, 0, 0}, cut.queries = {chunk, 0, 0};
          for (const int threads : {1, 2, 4}) {
            Threads pool(threads);
            const Values alone = run_attention(cut, paged, pool.stream(), type);
            ASSERT_EQ(alone.row(chunk - 1), whole.row(position))
                << position << " chunk " << chunk << " threads " << threads;
          }
        }
      }
    }
  }
}

TEST(Attention, PaddingRowsAndErrors) {
  Case c{DType::kBF16, 4, 2, 64, 64, {70, 3}, {2, 1}};
  Threads pool(2);
  Paged paged(c, 3);
  paged.write(pool.stream());
  c.context[1] = 0;  // one query without any context: a padding row
  const Values out = run_attention(c, paged, pool.stream(), DType::kF32);
  for (int d = 0; d < 256; ++d) EXPECT_EQ(out.get(2, d), 0.0f);

  Values q(DType::kBF16, {3, 4, 64}), o(DType::kBF16, {3, 256});
  const Values starts = int_values({0, 2, 3}), contexts = int_values({70, 3});
  std::vector<char> workspace(attention_workspace(pool.stream(), 3, 4, 64));
  AttentionParams p;
  p.q = q.view(), p.cache = paged.cache(), p.block_table = paged.table();
  p.row_start = starts.view(), p.context_len = contexts.view(), p.out = o.view(), p.workspace = workspace.data();
  ASSERT_TRUE(attention(p, pool.stream()).ok());
  const AttentionParams good = p;
  auto fails = [&](const char* what) {
    EXPECT_FALSE(attention(p, pool.stream()).ok()) << what;
    p = good;
  };
  const Values long_context = int_values({70, 300}), short_context = int_values({1, 3}),
               bad_start = int_values({0, 3, 2});
  const Values beyond = int_values({0, 2, 4});
  p.context_len = long_context.view();
  fails("context longer than its table");
  p.context_len = short_context.view();
  fails("context shorter than its queries");
  p.row_start = bad_start.view();
  fails("row_start descends");
  p.row_start = beyond.view();
  fails("row_start beyond q");
  p.workspace = nullptr;
  fails("no workspace");
  p.cache.spec.arrangement = KvArrangement::kHeadsKV;
  fails("arrangement");
  p.cache.spec.block_size = 24;
  fails("block size");
  p.cache.spec.head_dim_k = p.cache.spec.head_dim_v = 32;
  fails("head size");
  p.cache.spec.kv_heads = 3;
  fails("kv heads");
  p.out = o.view().columns(0, 128);
  fails("out");
  const TensorView table = p.block_table;
  Values negative(DType::kI32, {2, table.dim[1]});
  negative.at<int32_t>(0, 1) = -1;
  p.block_table = negative.view();
  fails("negative block");
}

void check_latent(DType type, int heads, int width, int rank, int block, std::vector<int> context,
                  std::vector<int> queries, int threads) {
  SCOPED_TRACE(std::string(type_name(type)) + " heads " + std::to_string(heads) + " width " + std::to_string(width));
  Threads pool(threads);
  KvSpec spec;
  spec.arrangement = KvArrangement::kMlaRows;
  spec.dtype = type, spec.layers = 1, spec.kv_heads = 1, spec.head_dim_k = width, spec.block_size = block;
  const size_t blocks = 64;
  std::vector<char> memory(blocks * spec.layer_block_bytes(), static_cast<char>(0xff));
  const KvLayerView cache{memory.data(), spec.layer_block_bytes(), spec};
  Values table(DType::kI32, {static_cast<int64_t>(context.size()), 40});
  std::vector<Values> latent, rope, q;
  std::vector<int32_t> start{0}, lens;
  int32_t next = 1;
  for (size_t r = 0; r < context.size(); ++r) {
    const auto seed = static_cast<uint32_t>(50 + r);
    latent.push_back(random_values(type, {context[r], rank}, seed));
    rope.push_back(random_values(type, {context[r], width - rank}, seed + 100));
    std::vector<int64_t> slots;
    for (int p = 0; p < context[r]; ++p) {
      if (p % block == 0) table.at<int32_t>(static_cast<int64_t>(r), p / block) = next++;
      slots.push_back(int64_t{next - 1} * block + p % block);
    }
    const Values slot = slot_values(slots);
    ASSERT_TRUE(mla_cache_write({latent[r].view(), rope[r].view(), cache, slot.view()}, pool.stream()).ok());
    start.push_back(start.back() + queries[r]);
    lens.push_back(context[r]);
  }
  const Values queries_all = random_values(type, {start.back(), heads, width}, 77, 0.3f);
  Values out(type, {start.back(), heads, rank});
  const Values starts = int_values(start), contexts = int_values(lens);
  std::vector<char> workspace(attention_workspace(pool.stream(), start.back(), heads, width));
  MlaAttentionParams p;
  p.q = queries_all.view(), p.cache = cache, p.block_table = table.view(), p.row_start = starts.view();
  p.context_len = contexts.view(), p.out = out.view(), p.kv_lora_rank = rank, p.scale = 0.2f;
  p.workspace = workspace.data();
  const Status s = mla_attention(p, pool.stream());
  ASSERT_TRUE(s.ok()) << s.error().message;
  Worst worst;
  for (size_t r = 0; r < context.size(); ++r) {
    for (int i = 0; i < queries[r]; ++i) {
      const int row = start[r] + i, seen = context[r] - queries[r] + i + 1;
      for (int h = 0; h < heads; ++h) {
        std::vector<double> w(static_cast<size_t>(seen)), want(static_cast<size_t>(rank), 0.0);
        double top = -1e300, sum = 0;
        for (int t = 0; t < seen; ++t) {
          double dot = 0;
          for (int d = 0; d < width; ++d) {
            const float key = d < rank ? latent[r].get(t, d) : rope[r].get(t, d - rank);
            dot += static_cast<double>(queries_all.get(row, h, d)) * static_cast<double>(key);
          }
          w[static_cast<size_t>(t)] = dot * static_cast<double>(0.2f);
          top = std::max(top, w[static_cast<size_t>(t)]);
        }
        for (double& v : w) sum += v = std::exp(v - top);
        for (int t = 0; t < seen; ++t) {
          for (int d = 0; d < rank; ++d) {
            want[static_cast<size_t>(d)] += w[static_cast<size_t>(t)] / sum * static_cast<double>(latent[r].get(t, d));
          }
        }
        for (int d = 0; d < rank; ++d) worst.add(out.get(row, h, d), want[static_cast<size_t>(d)]);
      }
    }
  }
  EXPECT_LE(worst.relative(), type == DType::kF32 ? 3e-6 : 8e-3);
}

TEST(MlaAttention, MatchesDoubleForEveryInstructionSet) {
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      check_latent(type, 4, 96, 64, 64, {70, 5}, {3, 5}, 2);
      check_latent(type, 3, 41, 33, 16, {37}, {2}, 1);
      check_latent(type, 60, 80, 64, 32, {600}, {1}, 2);
      check_latent(type, 2, 576, 512, 64, {66}, {1}, 2);
    }
  }
}

}  // namespace
}  // namespace tern::ops
