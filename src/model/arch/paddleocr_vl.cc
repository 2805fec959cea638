// The text side of PaddleOCR-VL (models-ernie-paddleocr.md 2.3, 6.4): ERNIE-4.5-0.3B's layer with halves rotated and
// three position axes. The tower of the same checkpoint is in vision/paddleocr_vl.cc.
#include "model/arch/common.h"

namespace tern::model {

void read_paddleocr_vl(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-5, true);
  read_gqa(config, spec, ops::RopeStyle::kHalfSplit, 500000.0);
  spec.attention.qkv_bias = spec.attention.out_bias = spec.mlp_bias = config.boolean_or("use_bias", false);
  read_dense_width(config, spec);
  refuse_sliding_window(config, spec, true);
  // The released model's split, whatever revision of a config leaves it out.
  if (spec.rope.sections.empty() && spec.rope.dim == 128) spec.rope.sections = {16, 24, 24};
  if (spec.rope.sections.empty()) config.complain("mrope_section is missing");
  spec.tower_names = {"visual.", "mlp_AR.", "projector."};
}

}  // namespace tern::model
