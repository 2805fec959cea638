// GLM-4.5 and 4.6 (models-other.md 9): half of each head rotates, experts route as DeepSeek's.
#include "model/arch/common.h"

namespace tern::model {

void read_glm4_moe(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-5, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit, 10000.0, 0.5);
  spec.attention.qkv_bias = config.boolean_or("attention_bias", false);
  spec.attention.qk_norm = config.boolean_or("use_qk_norm", false);
  read_dense_width(config, spec);
  read_first_dense(config, spec);
  read_noaux_routing(config, spec);
  // Published files may leave it out though they hold the layer.
  if (!config.has("num_nextn_predict_layers")) spec.mtp_layers = 1;
}

}  // namespace tern::model
