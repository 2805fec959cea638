#include "model/arch/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tern::model {

void read_base(ConfigReader& config, DecoderSpec& s, double default_eps, bool tied_by_default) {
  s.hidden_size = config.integer("hidden_size", 1, kMaxWidth);
  s.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  s.vocab_size = config.integer("vocab_size", 1, kMaxVocab);
  s.max_position = config.integer_or("max_position_embeddings", 2048, 1, 1 << 28);
  s.norm_eps = static_cast<float>(config.number_or("rms_norm_eps", default_eps, 0.0, 1.0));
  s.tied = config.boolean("tie_word_embeddings");
  s.tied_by_default = tied_by_default;
  s.mtp_layers = config.integer_or("num_nextn_predict_layers", 0, 0, 64);
  s.moe_layer.assign(static_cast<size_t>(s.layers), 0);
  s.eos_token_ids = token_ids(config, "eos_token_id");
  const auto bos = token_ids(config, "bos_token_id");
  s.bos_token_id = bos.empty() ? -1 : bos.front();
  const std::string act = config.string_or("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    config.complain(fmt::format("hidden_act {} is not supported (silu is)", act), ErrorCode::kUnsupported);
  const std::string type = config.string_or("dtype", config.string_or("torch_dtype", "bfloat16"));
  if (type != "bfloat16" && type != "float16" && type != "float32" && type != "auto")
    config.complain(fmt::format("dtype {} is not one of bfloat16, float16, float32", type), ErrorCode::kUnsupported);
}

void read_gqa(ConfigReader& config, DecoderSpec& s, ops::RopeStyle style, double default_theta,
              double default_partial) {
  AttentionSpec& a = s.attention;
  a.kind = AttentionKind::kGqa;
  a.heads = config.integer("num_attention_heads", 1, kMaxHeads);
  a.kv_heads = config.integer_or("num_key_value_heads", a.heads, 1, kMaxHeads);
  if (!config.has("head_dim") && s.hidden_size % a.heads != 0)
    config.complain(fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", s.hidden_size, a.heads));
  a.head_dim = config.integer_or("head_dim", std::max(1, s.hidden_size / a.heads), 1, kMaxHeadDim);
  if (a.head_dim % 8 != 0)
    config.complain(fmt::format("a head size of {} is not a multiple of 8", a.head_dim), ErrorCode::kUnsupported);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  s.rope = read_rope(config, style, a.head_dim, default_theta, default_partial);
}

void read_attention_bias(ConfigReader& config, DecoderSpec& s) {
  s.attention.qkv_bias = s.attention.out_bias = config.boolean_or("attention_bias", false);
}

void read_dense_width(ConfigReader& config, DecoderSpec& s) {
  s.intermediate = config.integer("intermediate_size", 1, kMaxWidth);
}

void refuse_sliding_window(ConfigReader& config, const DecoderSpec& s, bool in_use) {
  if (!in_use) return;
  const int window = config.integer_or("sliding_window", 0, 0, 1 << 28);
  if (window > 0 && window < s.max_position)
    config.complain(
        fmt::format("sliding_window {} below max_position_embeddings {} is not supported", window, s.max_position),
        ErrorCode::kUnsupported);
}

void read_sparse_step(ConfigReader& config, DecoderSpec& s) {
  const int step = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  const auto dense = config.integers("mlp_only_layers", 0, kMaxLayers, kMaxLayers);
  for (int i = 0; i < s.layers; ++i)
    s.moe_layer[static_cast<size_t>(i)] =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
}

void read_first_dense(ConfigReader& config, DecoderSpec& s) {
  const int first = config.integer_or("first_k_dense_replace", 0, 0, kMaxLayers);
  const int every = config.integer_or("moe_layer_freq", 1, 1, kMaxLayers);
  for (int i = 0; i < s.layers; ++i) s.moe_layer[static_cast<size_t>(i)] = i >= first && i % every == 0;
}

void read_noaux_routing(ConfigReader& config, DecoderSpec& s) {
  MoeSpec& m = s.moe;
  m.experts = config.integer("n_routed_experts", 1, kMaxExperts);
  m.top_k = config.integer("num_experts_per_tok", 1, kMaxExperts);
  m.intermediate = config.integer("moe_intermediate_size", 1, kMaxWidth);
  m.n_group = config.integer_or("n_group", 1, 1, kMaxExperts);
  m.topk_group = config.integer_or("topk_group", 1, 1, kMaxExperts);
  m.scoring = ops::MoeScoring::kSigmoid;
  m.correction_bias = Presence::kRequired;
  m.renormalize = config.boolean_or("norm_topk_prob", true);
  m.renorm_eps = 1e-20f;
  m.scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0, 0.0, 1e6));
  m.shared_intermediate = config.integer_or("n_shared_experts", 0, 0, 64) * m.intermediate;
  m.shared = "shared_experts";
}

}  // namespace tern::model
