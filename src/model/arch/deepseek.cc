// DeepSeek-V3, R1, V3.1, and V2 (models-other.md 7): latent attention, group-limited routing.
#include <fmt/format.h>

#include <cmath>

#include "model/arch/common.h"

namespace tern::model {
namespace {

void read_mla(ConfigReader& config, DecoderSpec& spec) {
  AttentionSpec& a = spec.attention;
  a.kind = AttentionKind::kMla;
  a.heads = a.kv_heads = config.integer("num_attention_heads", 1, kMaxHeads);
  a.q_lora_rank = config.integer_or("q_lora_rank", 0, 1, kMaxWidth);
  a.kv_lora_rank = config.integer("kv_lora_rank", 1, kMaxWidth);
  a.nope_dim = config.integer("qk_nope_head_dim", 1, kMaxHeadDim);
  a.rope_dim = config.integer("qk_rope_head_dim", 2, kMaxHeadDim);
  a.v_dim = config.integer("v_head_dim", 1, kMaxHeadDim);
  a.head_dim = a.nope_dim + a.rope_dim;
  a.qkv_bias = a.out_bias = config.boolean_or("attention_bias", false);
  a.latent_eps = 1e-6f;
  const auto style =
      config.boolean_or("rope_interleave", true) ? ops::RopeStyle::kInterleaved : ops::RopeStyle::kHalfSplit;
  spec.rope = read_rope(config, style, a.rope_dim);
  double scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
  if (spec.rope.scaling != RopeScaling::kDefault && spec.rope.mscale_all_dim != 0.0) {
    const double m = yarn_mscale(spec.rope.factor, spec.rope.mscale_all_dim);
    scale *= m * m;
  }
  a.scale = static_cast<float>(scale);
}

void read_scoring(ConfigReader& config, DecoderSpec& spec, const char* default_scoring, const char* default_method) {
  MoeSpec& m = spec.moe;
  const std::string scoring = config.string_or("scoring_func", default_scoring);
  if (scoring != "sigmoid" && scoring != "softmax")
    config.complain(fmt::format("scoring_func {} is neither sigmoid nor softmax", scoring), ErrorCode::kUnsupported);
  m.scoring = scoring == "softmax" ? ops::MoeScoring::kSoftmax : ops::MoeScoring::kSigmoid;
  const std::string method = config.string_or("topk_method", default_method);
  if (method != "noaux_tc" && method != "greedy" && method != "group_limited_greedy")
    config.complain(fmt::format("topk_method {} is not known", method), ErrorCode::kUnsupported);
  m.correction_bias = method == "noaux_tc" ? Presence::kRequired : Presence::kAbsent;
  if (method == "greedy") m.n_group = m.topk_group = 1;
}

}  // namespace

void read_deepseek_v3(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_mla(config, spec);
  read_dense_width(config, spec);
  read_first_dense(config, spec);
  read_noaux_routing(config, spec);
  read_scoring(config, spec, "sigmoid", "noaux_tc");
  if (!config.has("num_nextn_predict_layers")) spec.mtp_layers = 1;
}

void read_deepseek_v2(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_mla(config, spec);
  read_dense_width(config, spec);
  read_first_dense(config, spec);
  read_noaux_routing(config, spec);
  spec.moe.renormalize = config.boolean_or("norm_topk_prob", false);
  read_scoring(config, spec, "softmax", "greedy");
}

}  // namespace tern::model
