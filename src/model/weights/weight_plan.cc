#include "model/weights/weight_plan.h"

#include <fmt/format.h>

namespace tern::model {
namespace {

constexpr size_t kMaxParameters = 2'000'000;

// Walks the spec once, declaring each parameter and, beside it, where its slice goes.
class Planner {
 public:
  Planner(const DecoderSpec& spec, const Presences& presences, const Shard& shard, DecoderWeights& weights)
      : s_(spec), presences_(presences), shard_(shard), cut_(shard), w_(weights) {}

  Expected<WeightPlan> run() {
    const int64_t per_layer = 16 + 3 * (static_cast<int64_t>(s_.moe.experts) + s_.moe.second_experts);
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
    auto range = shard_range(p, cut_);
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
    if (s_.head != HeadKind::kVocabulary) {
      array(w_.embedding, {embed}, true, true);
      scores(w_.score);
    } else if (presences_.output.tied) {
      if (presences_.head_apart) array(w_.embedding, {embed}, true, true);
      matrix(w_.lm_head.weight, {embed}, MatrixRole::kHead);
    } else {
      array(w_.embedding, {embed}, true, true);
      const int head = linear("lm_head.weight", s_.vocab_size, s_.hidden_size, ShardRule::kVocabulary, s_.vocab_size,
                              {{presences_.output.name, 0, 0, 0, 0}});
      matrix(w_.lm_head.weight, {head}, MatrixRole::kHead);
    }
    norm(w_.final_norm, "model.norm.weight", s_.hidden_size);
  }

  // A head of few rows: every rank has all of it, in the activation type.
  void scores(DenseWeights& w) {
    const int64_t h = s_.hidden_size;
    const auto whole = [&](ops::PackedWeight& out, const char* name, int64_t rows) {
      matrix(out, {linear(name, rows, h, ShardRule::kReplicated, 1)}, MatrixRole::kPlain);
    };
    const auto bias = [&](TensorView& out, const char* name, int64_t rows) {
      array(out, {vector(name, ParameterKind::kBias, rows, ShardRule::kReplicated, 1)}, false);
    };
    if (s_.head == HeadKind::kReluMlp) {
      whole(w.gate_up.weight, "score.0.weight", h);
      bias(w.gate_up.bias, "score.0.bias", h);
      whole(w.down.weight, "score.2.weight", s_.labels);
      bias(w.down.bias, "score.2.bias", s_.labels);
    } else if (s_.head == HeadKind::kGatedMlp) {
      whole(w.gate_up.weight, "rm_head.up_gate_proj.weight", 2 * h);
      whole(w.down.weight, "rm_head.down_proj.weight", s_.labels);
    }
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
    if (s_.moe_layer[static_cast<size_t>(i)] != kDenseLayer) {
      moe(l.moe, at + s_.moe.block + ".", s_.moe_layer[static_cast<size_t>(i)]);
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

  // Fused files keep gate above up under either of two names.
  static std::vector<Location> fused_gate_up(const std::string& at, int64_t row, int64_t width, const char* leaf) {
    return {{at + "gate_up_proj." + leaf, row, 2 * width, 0, 0}, {at + "up_gate_proj." + leaf, row, 2 * width, 0, 0}};
  }

  // gate, up and down of a gated MLP.
  void gated_pair(ops::PackedWeight& gate_up, ops::PackedWeight& down, const std::string& at, int64_t width,
                  MatrixRole role) {
    const int64_t h = s_.hidden_size;
    matrix(
        gate_up,
        {linear(at + "gate_proj.weight", width, h, ShardRule::kColumn, width, fused_gate_up(at, 0, width, "weight")),
         linear(at + "up_proj.weight", width, h, ShardRule::kColumn, width, fused_gate_up(at, width, width, "weight"))},
        role);
    matrix(down, {linear(at + "down_proj.weight", h, width, ShardRule::kRow, width)}, role);
  }

  void dense(DenseWeights& w, const std::string& at, int64_t width, bool bias, MatrixRole role = MatrixRole::kLinear) {
    gated_pair(w.gate_up.weight, w.down.weight, at, width, role);
    if (!bias) return;
    constexpr auto kBias = ParameterKind::kBias;
    array(
        w.gate_up.bias,
        {vector(at + "gate_proj.bias", kBias, width, ShardRule::kColumn, width, fused_gate_up(at, 0, width, "bias")),
         vector(at + "up_proj.bias", kBias, width, ShardRule::kColumn, width, fused_gate_up(at, width, width, "bias"))},
        false);
    replicated_bias(w.down.bias, at + "down_proj.bias", s_.hidden_size);
  }

  // A bank of a layer's experts, with the names it has.
  struct Bank {
    int experts = 0, width = 0;
    int first = 0;       // number of its first expert
    std::string router;  // leaf
    std::string own;     // what exports that keep banks apart put before its names; empty: nothing
    int64_t index = -1;  // row of the correction bias that banks share; -1: it is not shared
  };

  std::vector<Bank> banks_of(uint8_t present) const {
    const MoeSpec& m = s_.moe;
    if (m.second_experts == 0) return {{m.experts, m.intermediate, 0, "gate.weight", "", -1}};
    std::vector<Bank> banks;
    if ((present & kFirstBank) != 0) banks.push_back({m.experts, m.intermediate, 0, "gate.weight", "text_moe.", 0});
    if ((present & kSecondBank) != 0)
      banks.push_back({m.second_experts, m.second_intermediate, m.experts, "gate.weight_1", "vision_moe.", 1});
    return banks;
  }

  void moe(MoeWeights& w, const std::string& at, uint8_t present) {
    const MoeSpec& m = s_.moe;
    // Newer files call every expert block "mlp", whatever the architecture once called it.
    const std::string plain = at.substr(0, at.size() - m.block.size() - 1) + "mlp.";
    const std::vector<Bank> banks = banks_of(present);
    if (m.second_experts > 0) w.split = (present & kFirstBank) != 0 ? m.experts : 0;
    std::vector<Piece> routers;
    ArrayPlan biases{&w.correction_bias, false, 0, 1, {}};
    size_t experts = 0;
    for (const Bank& b : banks) {
      routers.push_back(slice(router(at, plain, b)));
      if (presences_.correction_bias) {
        biases.pieces.push_back(slice(correction_bias(at, b)));
        biases.rows += b.experts;
      }
      experts += static_cast<size_t>(b.experts);
    }
    matrix(w.router, std::move(routers), MatrixRole::kRouter);
    if (presences_.correction_bias) plan_.arrays.push_back(std::move(biases));
    const bool dense_bank = m.second_experts > 0 && banks.size() == 1;
    w.gate_up.resize(experts + dense_bank), w.down.resize(experts + dense_bank);
    size_t place = 0;
    for (const Bank& b : banks)
      for (int e = 0; e < b.experts; ++e, ++place) expert(w.gate_up[place], w.down[place], at, plain, b, e);
    if (dense_bank) {
      cut_ = {shard_.expert_rank(), shard_.expert_ranks()};  // whoever has a part of the experts has one of it
      gated_pair(w.gate_up.back(), w.down.back(), plain, s_.intermediate, MatrixRole::kLinear);
      cut_ = shard_;
    }
    if (m.shared_intermediate > 0)
      dense(w.shared, at + m.shared + ".", m.shared_intermediate, false, MatrixRole::kSharedExpert);
    if (m.shared_gate) {
      const int gate = declare({at + "shared_expert_gate.weight",
                                ParameterKind::kRouter,
                                1,
                                s_.hidden_size,
                                ShardRule::kReplicated,
                                0,
                                1,
                                -1,
                                false,
                                {}});
      matrix(w.shared_gate, {gate}, MatrixRole::kRouter);
    }
  }

  int router(const std::string& at, const std::string& plain, const Bank& b) {
    std::vector<Location> others;
    if (plain != at) others.push_back({plain + b.router, 0, 0, 0, 0});
    if (!b.own.empty()) others.push_back({at + b.own + "gate.weight", 0, 0, 0, 0});
    // Files that name both banks' routers side by side store them [in, out] (models-ernie-paddleocr.md, trap 3).
    return declare({at + b.router, ParameterKind::kRouter, b.experts, s_.hidden_size, ShardRule::kReplicated, 0, 1, -1,
                    false, std::move(others), !b.own.empty()});
  }

  int correction_bias(const std::string& at, const Bank& b) {
    constexpr auto kBias = ParameterKind::kBias;
    const std::vector<std::string> names = {at + "moe_statics.e_score_correction_bias",
                                            at + "gate.moe_statics.e_score_correction_bias",
                                            at + "gate.e_score_correction_bias"};
    std::vector<Location> others;
    for (const std::string& name : names) {
      if (b.index >= 0) others.push_back({name, 0, 0, b.index, 2});
      others.push_back({name, 0, 0, 0, 0});
    }
    const std::string own = b.own.empty() ? s_.moe.bias_name : b.own + "gate.moe_statics.e_score_correction_bias";
    return vector(at + own, kBias, b.experts, ShardRule::kReplicated, 1, std::move(others));
  }

  // gate, up and down of one expert, the e-th of its bank.
  void expert(ops::PackedWeight& gate_up, ops::PackedWeight& down_out, const std::string& at, const std::string& plain,
              const Bank& b, int e) {
    const MoeSpec& m = s_.moe;
    const int64_t h = s_.hidden_size, width = b.width;
    const std::string mine = fmt::format("{}experts.{}.", at, b.first + e);
    const std::string renamed = fmt::format("{}{}experts.{}.", plain, b.own, e), stack = plain + b.own + "experts.";
    const auto places = [&](const char* leaf, int64_t row) {
      std::vector<Location> l{{stack + "gate_up_proj", row, 2 * width, e, b.experts},
                              {mine + "up_gate_proj.weight", row, 2 * width, 0, 0},
                              {mine + "gate_up_proj.weight", row, 2 * width, 0, 0}};
      if (renamed != mine) l.push_back({renamed + leaf, 0, 0, 0, 0});
      return l;
    };
    std::vector<Location> down_places{{stack + "down_proj", 0, h, e, b.experts}};
    if (renamed != mine) down_places.push_back({renamed + "down_proj.weight", 0, 0, 0, 0});
    expert_ = b.first + e;
    const int gate =
        linear(mine + m.gate + ".weight", width, h, ShardRule::kColumn, width, places("gate_proj.weight", 0));
    const int up =
        linear(mine + m.up + ".weight", width, h, ShardRule::kColumn, width, places("up_proj.weight", width));
    const int down = linear(mine + m.down + ".weight", h, width, ShardRule::kRow, width, std::move(down_places));
    expert_ = -1;
    if (shard_.expert_parallel && e * static_cast<int64_t>(shard_.expert_ranks()) / b.experts != shard_.expert_rank())
      return;
    const MatrixRole role = b.index == 1 ? MatrixRole::kPictureExpert : MatrixRole::kExpert;
    matrix(gate_up, {gate, up}, role);
    matrix(down_out, {down}, role);
  }

  const DecoderSpec& s_;
  const Presences presences_;
  const Shard shard_;
  Shard cut_;  // of what is declared now
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
  for (const int experts : {spec.moe.experts, spec.moe.second_experts})
    if (shard.expert_parallel && experts % shard.expert_ranks() != 0)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{} ranks cannot share {} experts evenly", shard.expert_ranks(), experts),
                        "expert-parallel-size");
  return Planner(spec, presences, shard, weights).run();
}

}  // namespace tern::model
