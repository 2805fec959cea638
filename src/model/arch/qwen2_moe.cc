// Qwen2-MoE (models-other.md 4): routed experts beside a gated shared one.
#include "model/arch/common.h"

namespace tern::model {

void read_qwen2_moe(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit);
  spec.attention.qkv_bias = config.boolean_or("qkv_bias", true);
  read_dense_width(config, spec);
  refuse_sliding_window(config, spec, config.boolean_or("use_sliding_window", false));
  read_sparse_step(config, spec);
  MoeSpec& m = spec.moe;
  m.experts = config.integer("num_experts", 1, kMaxExperts);
  m.top_k = config.integer("num_experts_per_tok", 1, kMaxExperts);
  m.intermediate = config.integer("moe_intermediate_size", 1, kMaxWidth);
  m.renormalize = config.boolean_or("norm_topk_prob", false);
  m.shared_intermediate = config.integer("shared_expert_intermediate_size", 1, kMaxWidth);
  m.shared = "shared_expert";
  m.shared_gate = true;
}

}  // namespace tern::model
