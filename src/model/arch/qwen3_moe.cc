// Qwen3-MoE (models-other.md 5).
#include "model/arch/common.h"

namespace tern::model {

void read_qwen3_moe(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit);
  read_attention_bias(config, spec);
  spec.attention.qk_norm = true;
  read_dense_width(config, spec);
  refuse_sliding_window(config, spec, config.boolean_or("use_sliding_window", false));
  read_sparse_step(config, spec);
  MoeSpec& m = spec.moe;
  m.experts = config.integer(config.has("num_experts") ? "num_experts" : "num_local_experts", 1, kMaxExperts);
  m.top_k = config.integer("num_experts_per_tok", 1, kMaxExperts);
  m.intermediate = config.integer("moe_intermediate_size", 1, kMaxWidth);
  m.renormalize = config.boolean_or("norm_topk_prob", true);
}

}  // namespace tern::model
