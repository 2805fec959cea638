// Mixtral (models-other.md 6): w1 is the gate, w3 the up and w2 the down projection.
#include "model/arch/common.h"

namespace tern::model {

void read_mixtral(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-5, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit, 1e6);
  refuse_sliding_window(config, spec, true);
  read_dense_width(config, spec);
  spec.moe_layer.assign(spec.moe_layer.size(), 1);
  MoeSpec& m = spec.moe;
  m.experts = config.integer(config.has("num_local_experts") ? "num_local_experts" : "num_experts", 1, kMaxExperts);
  m.top_k = config.integer("num_experts_per_tok", 1, kMaxExperts);
  m.intermediate = spec.intermediate;
  m.renormalize = true;
  m.block = "block_sparse_moe";
  m.gate = "w1", m.up = "w3", m.down = "w2";
}

}  // namespace tern::model
