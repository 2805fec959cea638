// Llama 2 and 3 (models-other.md 2).
#include "model/arch/common.h"

namespace tern::model {

void read_llama(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit);
  read_attention_bias(config, spec);
  read_dense_width(config, spec);
  spec.mlp_bias = config.boolean_or("mlp_bias", false);
}

}  // namespace tern::model
