// ERNIE-4.5 dense (models-ernie-paddleocr.md 2 to 4): Llama's layer with adjacent pairs rotated.
#include "model/arch/common.h"

namespace tern::model {

void read_ernie4_5(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-5, true);
  read_gqa(config, spec, ops::RopeStyle::kInterleaved, 500000.0);
  spec.attention.qkv_bias = spec.attention.out_bias = spec.mlp_bias = config.boolean_or("use_bias", false);
  read_dense_width(config, spec);
}

}  // namespace tern::model
