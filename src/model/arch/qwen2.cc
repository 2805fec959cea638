// Qwen2 and Qwen2.5 (models-other.md 3): Llama with a bias on q, k and v.
#include "model/arch/common.h"

namespace tern::model {

void read_qwen2(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit);
  spec.attention.qkv_bias = true;
  read_dense_width(config, spec);
  refuse_sliding_window(config, spec, config.boolean_or("use_sliding_window", false));
}

}  // namespace tern::model
