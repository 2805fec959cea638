// Qwen3 (models-other.md 5): q and k are normalised per head.
#include "model/arch/common.h"

namespace tern::model {

void read_qwen3(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit);
  read_attention_bias(config, spec);
  spec.attention.qk_norm = true;
  read_dense_width(config, spec);
  refuse_sliding_window(config, spec, config.boolean_or("use_sliding_window", false));
}

}  // namespace tern::model
