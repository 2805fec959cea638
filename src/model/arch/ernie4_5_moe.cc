// ERNIE-4.5 with text experts (models-ernie-paddleocr.md 2 to 4).
#include <fmt/format.h>

#include "model/arch/common.h"

namespace tern::model {
namespace {

// mlp_layer_types of newer files, else start, end (inclusive; -1: the last) and interval.
void read_expert_layers(ConfigReader& config, DecoderSpec& spec) {
  const json::Value* types = json::find(config.object(), "mlp_layer_types");
  if (types != nullptr) {
    if (!types->is_array() || types->get_array().size() < static_cast<size_t>(spec.layers))
      return config.complain(fmt::format("mlp_layer_types must be a list of {} entries", spec.layers));
    for (size_t i = 0; i < spec.moe_layer.size(); ++i) spec.moe_layer[i] = types->get_array()[i] == "sparse";
    return;
  }
  const int start = config.integer_or("moe_layer_start_index", 0, 0, kMaxLayers);
  int end = config.integer_or("moe_layer_end_index", -1, -1, kMaxLayers);
  if (end < 0) end = spec.layers - 1;
  const int interval = config.integer_or("moe_layer_interval", 1, 1, kMaxLayers);
  for (int i = 0; i < spec.layers; ++i)
    spec.moe_layer[static_cast<size_t>(i)] = (i + 1) % interval == 0 && i >= start && i <= end;
}

}  // namespace

void read_ernie4_5_moe(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-5, true);
  read_gqa(config, spec, ops::RopeStyle::kInterleaved, 500000.0);
  read_dense_width(config, spec);
  if (config.boolean_or("use_bias", false))
    config.complain("use_bias with experts is not supported", ErrorCode::kUnsupported);
  read_expert_layers(config, spec);
  MoeSpec& m = spec.moe;
  m.experts = config.integer("moe_num_experts", 1, kMaxExperts);
  m.top_k = config.integer("moe_k", 1, kMaxExperts);
  m.intermediate = config.integer("moe_intermediate_size", 1, kMaxWidth);
  m.scoring = ops::MoeScoring::kSoftmax;
  m.renormalize = true;
  m.renorm_min = static_cast<float>(config.number_or("moe_norm_min", 1e-12, 0.0, 1.0));
  // moe_use_aux_free says the same, but not reliably: the tensor itself decides (trap 12).
  m.correction_bias = Presence::kOptional;
  m.bias_name = "moe_statics.e_score_correction_bias";
  m.shared_intermediate = config.integer_or("moe_num_shared_experts", 0, 0, 64) * m.intermediate;
}

}  // namespace tern::model
