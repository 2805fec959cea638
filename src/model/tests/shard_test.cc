// Ranks' slices, joined, are the whole; what cannot be divided is a clear error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "model/arch/registry.h"
#include "model/files/checkpoint.h"
#include "model/tests/plain_formats.h"
#include "model/tests/support.h"
#include "model/weights/pack.h"

namespace tern::model {
namespace {

using testing::PlainFormat;
using testing::TempFolder;

struct Rank {
  DecoderWeights weights;
  WeightPlan plan;
};

// The weights of one rank, packed row by row as float32, so that they can be read back.
std::unique_ptr<Rank> load_rank(const std::string& folder, const Shard& shard) {
  auto r = std::make_unique<Rank>();
  const auto config = read_config(folder, "config.json", {});
  const auto spec = read_spec(*config);
  const auto checkpoint = Checkpoint::open(folder);
  auto plan = plan_weights(*spec, detect_presences(*spec, *checkpoint), shard, r->weights);
  if (!plan.ok()) return ADD_FAILURE() << plan.error().message, nullptr;
  r->plan = std::move(*plan);
  auto stored = resolve_parameters(r->plan.parameters, *checkpoint, {spec->layers, spec->mtp_layers, false});
  if (!stored.ok()) return ADD_FAILURE() << stored.error().message, nullptr;
  static const PlainFormat plain;
  PackOptions options;
  options.activation = DType::kF32;
  options.formats.fill(&plain);
  const Status s = pack_weights(r->plan, CheckpointSource(r->plan.parameters, std::move(*stored)), options,
                                testing::cpu(), r->weights);
  if (!s.ok()) return ADD_FAILURE() << s.error().message, nullptr;
  return r;
}

// Values of every parameter, put together from what ranks hold; how often each element was held.
struct Joined {
  std::vector<std::vector<float>> values;
  std::vector<std::vector<int>> held;
};

Joined join(const std::vector<std::unique_ptr<Rank>>& ranks) {
  Joined j;
  for (const Parameter& p : ranks.front()->plan.parameters) {
    j.values.emplace_back(static_cast<size_t>(p.elements()), -1e30f);
    j.held.emplace_back(static_cast<size_t>(p.elements()), 0);
  }
  const auto put = [&](const WeightPlan& plan, const std::vector<Piece>& pieces, const float* data, int64_t cols) {
    int64_t row = 0;
    for (const Piece& piece : pieces) {
      const auto i = static_cast<size_t>(piece.parameter);
      const int64_t width = plan.parameters[i].cols;
      for (int64_t r = 0; r < piece.target_rows(); ++r, ++row) {
        for (int64_t c = 0; c < piece.target_cols(); ++c) {
          const int64_t pr = piece.row + (piece.transposed ? c : r), pc = piece.col + (piece.transposed ? r : c);
          float& v = j.values[i][static_cast<size_t>(pr * width + pc)];
          const float got = data[row * cols + c];
          EXPECT_TRUE(v == -1e30f || v == got) << plan.parameters[i].name;  // copies agree
          v = got;
          ++j.held[i][static_cast<size_t>(pr * width + pc)];
        }
      }
    }
  };
  for (const auto& rank : ranks) {
    for (const MatrixPlan& m : rank->plan.matrices)
      put(rank->plan, m.pieces, reinterpret_cast<const float*>(m.out->data.data()), m.k);
    for (const ArrayPlan& a : rank->plan.arrays) put(rank->plan, a.pieces, a.out->as<const float>(), a.cols);
  }
  return j;
}

void expect_joined(const std::string& folder, int n, bool expert_parallel) {
  std::vector<std::unique_ptr<Rank>> whole, ranks;
  whole.push_back(load_rank(folder, {}));
  for (int r = 0; r < n; ++r) ranks.push_back(load_rank(folder, {r, n, expert_parallel}));
  for (const auto& r : ranks) ASSERT_NE(r, nullptr);
  const Joined want = join(whole), got = join(ranks);
  for (size_t i = 0; i < want.values.size(); ++i) {
    const Parameter& p = whole.front()->plan.parameters[i];
    EXPECT_EQ(want.values[i], got.values[i]) << p.name << " over " << n << " ranks";
    // A divided parameter lies once in the group; KV heads are copied when there are more ranks than heads.
    int copies = n;
    if (p.rule == ShardRule::kKvHeads) copies = std::max<int>(1, n / static_cast<int>(p.units));
    if (p.rule == ShardRule::kHeads || p.rule == ShardRule::kColumn || p.rule == ShardRule::kRow ||
        p.rule == ShardRule::kVocabulary)
      copies = 1;
    if (expert_parallel && p.expert >= 0) copies = 1;
    const bool once_on_rank_0 =
        p.name.size() > 11 && (p.name.ends_with("o_proj.bias") || p.name.ends_with("down_proj.bias"));
    for (int held : got.held[i]) ASSERT_EQ(held, once_on_rank_0 ? 1 : copies) << p.name;
  }
}

TEST(Shard, SlicesOfTwoAndFourRanksAreTheWhole) {
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    TempFolder folder;
    testing::write_random_model(folder.path(), config);
    for (int n : {2, 4}) expect_joined(folder.path(), n, false);
  }
}

TEST(Shard, ExpertsMayBeDealtWhole) {
  for (const auto& [name, config] : testing::small_configs(4, 4)) {
    TempFolder folder;
    testing::write_random_model(folder.path(), config);
    expect_joined(folder.path(), 2, true);
  }
}

TEST(Shard, TheReferenceCasesJoinToo) {
  for (const char* name : {"ernie4_5", "ernie4_5_moe", "llama3", "llama_tied", "qwen2", "qwen3", "qwen2_moe",
                           "qwen3_moe", "mixtral", "deepseek_v3", "glm4_moe"})
    expect_joined(testing::golden(name), 2, false);
}

// A rank's query heads must meet the KV head that they read in the whole model.
TEST(Shard, QueryHeadsFollowTheirKvHeads) {
  for (const auto& [heads, kv_heads, n] :
       std::vector<std::tuple<int, int, int>>{{8, 2, 2}, {8, 2, 4}, {8, 2, 8}, {8, 4, 2}, {8, 8, 4}, {4, 1, 4}}) {
    json::Object config = testing::small_config("LlamaForCausalLM", heads, kv_heads);
    const auto spec = read_spec(config);
    ASSERT_TRUE(spec.ok());
    const int64_t group = heads / kv_heads;
    for (int r = 0; r < n; ++r) {
      DecoderWeights places;
      const auto plan = plan_weights(*spec, {}, {r, n, false}, places);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const MatrixPlan* qkv = nullptr;
      for (const auto& m : plan->matrices)
        if (m.out == &places.layers[0].gqa.qkv.weight) qkv = &m;
      ASSERT_NE(qkv, nullptr);
      const int64_t d = spec->attention.head_dim;
      const int64_t local_heads = qkv->pieces[0].rows / d, local_kv = qkv->pieces[1].rows / d;
      ASSERT_EQ(local_heads % local_kv, 0);
      for (int64_t h = 0; h < local_heads; ++h) {
        const int64_t head = qkv->pieces[0].row / d + h, kv = qkv->pieces[1].row / d + h / (local_heads / local_kv);
        EXPECT_EQ(kv, head / group) << heads << " " << kv_heads << " " << n << " rank " << r;
        EXPECT_EQ(qkv->pieces[2].row, qkv->pieces[1].row);
      }
    }
  }
}

TEST(Shard, WhatDoesNotDivideIsAClearError) {
  const auto error = [](const json::Object& config, const Shard& shard) {
    const auto spec = read_spec(config);
    DecoderWeights places;
    const auto plan = plan_weights(spec.value(), {}, shard, places);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_NE(error(testing::small_config("LlamaForCausalLM", 4, 2), {0, 3, false})
                .find("3 ranks cannot share model.layers.0.self_attn.q_proj.weight: its 4 heads do not divide"),
            std::string::npos);
  EXPECT_NE(error(testing::small_config("DeepseekV3ForCausalLM", 4, 2), {0, 3, false}).find("heads do not divide"),
            std::string::npos);
  EXPECT_NE(error(testing::small_config("LlamaForCausalLM", 6, 3), {0, 2, false}).find("KV heads"), std::string::npos);
  EXPECT_NE(error(testing::small_config("Qwen3MoeForCausalLM", 4, 2), {0, 3, true}).find("4 experts"),
            std::string::npos);
  json::Object odd = testing::small_config("LlamaForCausalLM", 4, 2);
  odd["intermediate_size"] = 97;
  EXPECT_NE(error(odd, {0, 2, false}).find("97 rows do not divide"), std::string::npos);
  EXPECT_NE(error(testing::small_config("LlamaForCausalLM", 4, 2), {2, 2, false}).find("rank 2 of 2"),
            std::string::npos);
}

TEST(Shard, AModelOfSeveralRanksDoesNotRunAlone) {
  LoadOptions o;
  o.path = testing::golden("llama_tied");
  o.shard = {1, 2, false};
  // Two heads and one KV head: the rank has one of each.
  const auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->kv_specs(64)[0].kv_heads, 1);
}

}  // namespace
}  // namespace tern::model
