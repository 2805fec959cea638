#include "model/weights/weight_plan.h"

#include <fmt/format.h>

#include "base/checked.h"

namespace tern::model {
namespace {

constexpr size_t kMaxParameters = 2'000'000;

// Walks the spec once, declaring each parameter and, beside it, where its slice goes.
class Planner {
 public:
  Planner(const DecoderSpec& spec, const Presences& presences, const Shard& shard, DecoderWeights& weights)
      : s_(spec), presences_(presences), shard_(shard), w_(weights) {}

  Expected<WeightPlan> run() {
    const int64_t per_layer = 16 + 3 * static_cast<int64_t>(s_.moe.experts);
    if (per_layer * s_.layers > static_cast<int64_t>(kMaxParameters))
      return make_error(ErrorCode::kTooLarge,
                        fmt::format("config.json describes more than {} tensors", kMaxParameters));
    w_.layers.resize(static_cast<size_t>(s_.layers));
    top();
    for (int i = 0; i < s_.layers; ++i) layer(i);
    if (!error_.ok()) return std::move(error_).error();
    return std::move(plan_);
  }

 private:
  // ---- declarations
  int declare(Parameter p) {
    plan_.parameters.push_back(std::move(p));
    return static_cast<int>(plan_.parameters.size()) - 1;
  }
  int linear(std::string name, int64_t rows, int64_t cols, ShardRule rule, int64_t units,
             std::vector<Location> others = {}) {
    const int axis = rule == ShardRule::kRow ? 1 : 0;
    return declare(
        {std::move(name), ParameterKind::kLinear, rows, cols, rule, axis, units, expert_, false, std::move(others)});
  }
  int vector(std::string name, ParameterKind kind, int64_t n, ShardRule rule, int64_t units,
             std::vector<Location> others = {}) {
    return declare({std::move(name), kind, n, 1, rule, 0, units, expert_, false, std::move(others)});
  }

  // ---- this rank's slice of a parameter
  Piece slice(int id) {
    const Parameter& p = plan_.parameters[static_cast<size_t>(id)];
    auto range = shard_range(p, shard_);
    if (!range.ok()) {
      if (error_.ok()) error_ = range.error();
      return {id, 0, p.rows, 0, p.cols};
    }
    if (p.axis == 0) return {id, range->begin, range->size(), 0, p.cols};
    return {id, 0, p.rows, range->begin, range->size()};
  }

  void matrix(ops::PackedWeight& out, std::vector<Piece> pieces, MatrixRole role = MatrixRole::kLinear) {
    MatrixPlan m{&out, role, 0, pieces.front().target_cols(), std::move(pieces)};
    for (const Piece& p : m.pieces) m.n += p.target_rows();
    plan_.matrices.push_back(std::move(m));
  }
  void matrix(ops::PackedWeight& out, std::initializer_list<int> ids, MatrixRole role = MatrixRole::kLinear) {
    std::vector<Piece> pieces;
    for (int id : ids) pieces.push_back(slice(id));
    matrix(out, std::move(pieces), role);
  }
  void array(TensorView& out, std::initializer_list<int> ids, bool activation_type, bool table = false) {
    ArrayPlan a{&out, activation_type, 0, 1, {}};
    for (int id : ids) {
      a.pieces.push_back(slice(id));
      a.rows += a.pieces.back().rows;
    }
    if (table) a.cols = a.pieces.front().cols;
    plan_.arrays.push_back(std::move(a));
  }
  void norm(TensorView& out, std::string name, int64_t n) {
    array(out, {vector(std::move(name), ParameterKind::kNorm, n, ShardRule::kReplicated, 1)}, true);
  }
  // Biases of row-parallel layers are added once: by rank 0.
  void replicated_bias(TensorView& out, std::string name, int64_t n) {
    const int id = vector(std::move(name), ParameterKind::kBias, n, ShardRule::kReplicated, 1);
    if (shard_.rank == 0) array(out, {id}, false);
  }

  // ---- the decoder
  void top() {
    const int embed = declare({"model.embed_tokens.weight",
                               ParameterKind::kTable,
                               s_.vocab_size,
                               s_.hidden_size,
                               ShardRule::kVocabulary,
                               0,
                               s_.vocab_size,
                               -1,
                               false,
                               {}});
    if (presences_.tied) {
      matrix(w_.lm_head.weight, {embed}, MatrixRole::kPlain);
    } else {
      array(w_.embedding, {embed}, true, true);
      matrix(w_.lm_head.weight,
             {linear("lm_head.weight", s_.vocab_size, s_.hidden_size, ShardRule::kVocabulary, s_.vocab_size)},
             MatrixRole::kPlain);
    }
    norm(w_.final_norm, "model.norm.weight", s_.hidden_size);
  }

  void layer(int i) {
    LayerWeights& l = w_.layers[static_cast<size_t>(i)];
    const std::string at = fmt::format("model.layers.{}.", i);
    norm(l.input_norm, at + "input_layernorm.weight", s_.hidden_size);
    if (s_.attention.kind == AttentionKind::kGqa) {
      gqa(l.gqa, at + "self_attn.");
    } else {
      mla(l.mla, at + "self_attn.");
    }
    norm(l.post_norm, at + "post_attention_layernorm.weight", s_.hidden_size);
    if (s_.moe_layer[static_cast<size_t>(i)] != 0) {
      moe(l.moe, at + s_.moe.block + ".");
    } else {
      dense(l.dense, at + "mlp.", s_.intermediate, s_.mlp_bias);
    }
  }

  void gqa(GqaWeights& w, const std::string& at) {
    const AttentionSpec& a = s_.attention;
    const int64_t d = a.head_dim, q_rows = a.heads * d, kv_rows = a.kv_heads * d, all = q_rows + 2 * kv_rows;
    const auto fused = [&](int64_t row, const char* leaf) {
      return std::vector<Location>{{at + "qkv_proj." + leaf, row, all, 0, 0}};
    };
    matrix(w.qkv.weight,
           {linear(at + "q_proj.weight", q_rows, s_.hidden_size, ShardRule::kHeads, a.heads, fused(0, "weight")),
            linear(at + "k_proj.weight", kv_rows, s_.hidden_size, ShardRule::kKvHeads, a.kv_heads,
                   fused(q_rows, "weight")),
            linear(at + "v_proj.weight", kv_rows, s_.hidden_size, ShardRule::kKvHeads, a.kv_heads,
                   fused(q_rows + kv_rows, "weight"))});
    if (a.qkv_bias) {
      constexpr auto kBias = ParameterKind::kBias;
      array(w.qkv.bias,
            {vector(at + "q_proj.bias", kBias, q_rows, ShardRule::kHeads, a.heads, fused(0, "bias")),
             vector(at + "k_proj.bias", kBias, kv_rows, ShardRule::kKvHeads, a.kv_heads, fused(q_rows, "bias")),
             vector(at + "v_proj.bias", kBias, kv_rows, ShardRule::kKvHeads, a.kv_heads,
                    fused(q_rows + kv_rows, "bias"))},
            false);
    }
    matrix(w.out.weight, {linear(at + "o_proj.weight", s_.hidden_size, q_rows, ShardRule::kRow, a.heads)});
    if (a.out_bias) replicated_bias(w.out.bias, at + "o_proj.bias", s_.hidden_size);
    if (a.qk_norm) {
      norm(w.q_norm, at + "q_norm.weight", d);
      norm(w.k_norm, at + "k_norm.weight", d);
    }
  }

  void mla(MlaWeights& w, const std::string& at) {
    const AttentionSpec& a = s_.attention;
    const int64_t h = s_.hidden_size, row = a.kv_lora_rank + a.rope_dim, head = a.nope_dim + a.rope_dim;
    const int kv_a = linear(at + "kv_a_proj_with_mqa.weight", row, h, ShardRule::kReplicated, 1);
    const int kv_a_bias =
        a.qkv_bias ? vector(at + "kv_a_proj_with_mqa.bias", ParameterKind::kBias, row, ShardRule::kReplicated, 1) : -1;
    if (a.q_lora_rank > 0) {
      matrix(w.down.weight, {linear(at + "q_a_proj.weight", a.q_lora_rank, h, ShardRule::kReplicated, 1), kv_a});
      if (a.qkv_bias)
        array(w.down.bias,
              {vector(at + "q_a_proj.bias", ParameterKind::kBias, a.q_lora_rank, ShardRule::kReplicated, 1), kv_a_bias},
              false);
      norm(w.q_norm, at + "q_a_layernorm.weight", a.q_lora_rank);
      split_queries(w, linear(at + "q_b_proj.weight", a.heads * head, a.q_lora_rank, ShardRule::kHeads, a.heads));
    } else {
      matrix(w.down.weight, {kv_a});
      if (a.qkv_bias) array(w.down.bias, {kv_a_bias}, false);
      split_queries(w, linear(at + "q_proj.weight", a.heads * head, h, ShardRule::kHeads, a.heads));
    }
    norm(w.kv_norm, at + "kv_a_layernorm.weight", a.kv_lora_rank);
    const int64_t pair = a.nope_dim + a.v_dim;
    const int kv_b = linear(at + "kv_b_proj.weight", a.heads * pair, a.kv_lora_rank, ShardRule::kHeads, a.heads);
    const Piece mine = slice(kv_b);
    const auto heads = static_cast<size_t>(mine.rows / pair);
    w.w_uk.resize(heads), w.w_uv.resize(heads);
    for (size_t i = 0; i < heads; ++i) {
      const int64_t r = mine.row + static_cast<int64_t>(i) * pair;
      matrix(w.w_uk[i], std::vector<Piece>{{kv_b, r, a.nope_dim, 0, a.kv_lora_rank, true}}, MatrixRole::kPlain);
      matrix(w.w_uv[i], std::vector<Piece>{{kv_b, r + a.nope_dim, a.v_dim, 0, a.kv_lora_rank}}, MatrixRole::kPlain);
    }
    matrix(w.out.weight,
           {linear(at + "o_proj.weight", h, static_cast<int64_t>(a.heads) * a.v_dim, ShardRule::kRow, a.heads)});
    if (a.out_bias) replicated_bias(w.out.bias, at + "o_proj.bias", h);
  }

  // Rows of a head: nope, then rope. The rotated part stays float32 until it is rotated, so it gets a product of its
  // own.
  void split_queries(MlaWeights& w, int q) {
    const AttentionSpec& a = s_.attention;
    const int64_t head = a.nope_dim + a.rope_dim;
    const Piece mine = slice(q);
    std::vector<Piece> nope, rope;
    for (int64_t r = mine.row; r < mine.row + mine.rows; r += head) {
      nope.push_back({q, r, a.nope_dim, 0, mine.cols});
      rope.push_back({q, r + a.nope_dim, a.rope_dim, 0, mine.cols});
    }
    matrix(w.q_nope, std::move(nope));
    matrix(w.q_rope, std::move(rope));
  }

  // gate, up and down of a gated MLP; fused files keep gate above up under either of two names.
  void dense(DenseWeights& w, const std::string& at, int64_t width, bool bias) {
    const auto fused = [&](int64_t row, const char* leaf) {
      return std::vector<Location>{{at + "gate_up_proj." + leaf, row, 2 * width, 0, 0},
                                   {at + "up_gate_proj." + leaf, row, 2 * width, 0, 0}};
    };
    const int64_t h = s_.hidden_size;
    matrix(w.gate_up.weight,
           {linear(at + "gate_proj.weight", width, h, ShardRule::kColumn, width, fused(0, "weight")),
            linear(at + "up_proj.weight", width, h, ShardRule::kColumn, width, fused(width, "weight"))});
    matrix(w.down.weight, {linear(at + "down_proj.weight", h, width, ShardRule::kRow, width)});
    if (!bias) return;
    constexpr auto kBias = ParameterKind::kBias;
    array(w.gate_up.bias,
          {vector(at + "gate_proj.bias", kBias, width, ShardRule::kColumn, width, fused(0, "bias")),
           vector(at + "up_proj.bias", kBias, width, ShardRule::kColumn, width, fused(width, "bias"))},
          false);
    replicated_bias(w.down.bias, at + "down_proj.bias", h);
  }

  void moe(MoeWeights& w, const std::string& at) {
    const MoeSpec& m = s_.moe;
    const int64_t h = s_.hidden_size;
    // Newer files call every expert block "mlp", whatever the architecture once called it.
    const std::string plain = at.substr(0, at.size() - m.block.size() - 1) + "mlp.";
    const auto renamed = [&](const std::string& leaf) {
      return plain == at ? std::vector<Location>{} : std::vector<Location>{{plain + leaf, 0, 0, 0, 0}};
    };
    const int router = declare({at + "gate.weight", ParameterKind::kRouter, m.experts, h, ShardRule::kReplicated, 0, 1,
                                -1, false, renamed("gate.weight")});
    matrix(w.router, {router}, MatrixRole::kRouter);
    if (presences_.correction_bias) {
      array(w.correction_bias,
            {vector(at + m.bias_name, ParameterKind::kBias, m.experts, ShardRule::kReplicated, 1,
                    {{at + "moe_statics.e_score_correction_bias", 0, 0, 0, 0},
                     {at + "gate.moe_statics.e_score_correction_bias", 0, 0, 0, 0},
                     {at + "gate.e_score_correction_bias", 0, 0, 0, 0}})},
            false);
    }
    w.gate_up.resize(static_cast<size_t>(m.experts)), w.down.resize(static_cast<size_t>(m.experts));
    for (int e = 0; e < m.experts; ++e) expert(w, at, plain, e);
    if (m.shared_intermediate > 0) dense(w.shared, at + m.shared + ".", m.shared_intermediate, false);
    if (m.shared_gate) {
      const int gate = declare({at + "shared_expert_gate.weight",
                                ParameterKind::kRouter,
                                1,
                                h,
                                ShardRule::kReplicated,
                                0,
                                1,
                                -1,
                                false,
                                {}});
      matrix(w.shared_gate, {gate}, MatrixRole::kRouter);
    }
  }

  void expert(MoeWeights& w, const std::string& at, const std::string& plain, int e) {
    const MoeSpec& m = s_.moe;
    const int64_t h = s_.hidden_size, width = m.intermediate;
    const std::string mine = fmt::format("{}experts.{}.", at, e), renamed = fmt::format("{}experts.{}.", plain, e);
    const auto places = [&](const char* leaf, int64_t row) {
      std::vector<Location> l{{plain + "experts.gate_up_proj", row, 2 * width, e, m.experts},
                              {mine + "up_gate_proj.weight", row, 2 * width, 0, 0},
                              {mine + "gate_up_proj.weight", row, 2 * width, 0, 0}};
      if (plain != at) l.push_back({renamed + leaf, 0, 0, 0, 0});
      return l;
    };
    std::vector<Location> down_places{{plain + "experts.down_proj", 0, h, e, m.experts}};
    if (plain != at) down_places.push_back({renamed + "down_proj.weight", 0, 0, 0, 0});
    expert_ = e;
    const int gate =
        linear(mine + m.gate + ".weight", width, h, ShardRule::kColumn, width, places("gate_proj.weight", 0));
    const int up =
        linear(mine + m.up + ".weight", width, h, ShardRule::kColumn, width, places("up_proj.weight", width));
    const int down = linear(mine + m.down + ".weight", h, width, ShardRule::kRow, width, std::move(down_places));
    expert_ = -1;
    if (shard_.expert_parallel && shard_.ranks > 1 && e * static_cast<int64_t>(shard_.ranks) / m.experts != shard_.rank)
      return;
    matrix(w.gate_up[static_cast<size_t>(e)], {gate, up});
    matrix(w.down[static_cast<size_t>(e)], {down});
  }

  const DecoderSpec& s_;
  const Presences presences_;
  const Shard shard_;
  DecoderWeights& w_;
  WeightPlan plan_;
  Status error_;
  int expert_ = -1;
};

}  // namespace

Expected<WeightPlan> plan_weights(const DecoderSpec& spec, const Presences& presences, const Shard& shard,
                                  DecoderWeights& weights) {
  if (shard.ranks < 1 || shard.rank < 0 || shard.rank >= shard.ranks)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("rank {} of {} does not exist", shard.rank, shard.ranks));
  if (shard.expert_parallel && spec.moe.experts > 0 && spec.moe.experts % shard.ranks != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} ranks cannot share {} experts evenly", shard.ranks, spec.moe.experts),
                      "expert-parallel-size");
  return Planner(spec, presences, shard, weights).run();
}

Expected<ParameterCount> count_parameters(const DecoderSpec& spec, const WeightPlan& plan) {
  ParameterCount count;
  for (const Parameter& p : plan.parameters) {
    const auto elements = checked_mul(p.rows, p.cols);
    const auto all = elements ? checked_add(count.all, *elements) : std::nullopt;
    if (!all || *all > (int64_t{1} << 50))
      return make_error(ErrorCode::kTooLarge, "config.json describes more weights than any machine holds");
    count.all = *all;
    if (p.expert < 0) count.active += *elements;
  }
  if (spec.moe.experts > 0) {
    const int64_t experts = count.all - count.active;
    count.active += experts / spec.moe.experts * spec.moe.top_k;
  }
  return count;
}

}  // namespace tern::model
