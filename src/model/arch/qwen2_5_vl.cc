// The text side of Qwen2.5-VL (models-other.md 8.1): Qwen2 with three position axes. The tower of the same checkpoint
// is in vision/qwen2_5_vl.cc.
#include "model/arch/common.h"

namespace tern::model {

void read_qwen2_5_vl(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-6, false);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit, 1000000.0);
  spec.attention.qkv_bias = true;
  read_dense_width(config, spec);
  refuse_sliding_window(config, spec, config.boolean_or("use_sliding_window", false));
  if (spec.rope.sections.empty()) config.complain("mrope_section is missing");
  spec.tower_names = {"visual."};
}

}  // namespace tern::model
