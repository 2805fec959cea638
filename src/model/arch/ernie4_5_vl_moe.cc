// The text side of ERNIE-4.5-VL (models-ernie-paddleocr.md 2.2, 5.1 to 5.3): ERNIE-4.5 with a second bank of experts
// for the tokens of pictures and rotation by three positions.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "model/arch/common.h"

namespace tern::model {
namespace {

// A key that is one number for both banks, or one for each.
std::pair<int, int> pair_of(ConfigReader& config, std::string_view key, int64_t min, int64_t max) {
  const json::Value* v = json::find(config.object(), key);
  if (v == nullptr || !v->is_array()) {
    const int both = config.integer(key, min, max);
    return {both, both};
  }
  const std::vector<int> values = config.integers(key, min, max, 2);
  if (values.size() == 2) return {values[0], values[1]};
  if (values.size() == 1) return {values[0], values[0]};
  config.complain(fmt::format("{} must be a number or a list of two", key));
  return {static_cast<int>(min), static_cast<int>(min)};
}

// mlp_layer_types of native exports, else [start, end] of each bank within the layers that the interval picks.
void read_expert_layers(ConfigReader& config, DecoderSpec& spec) {
  constexpr uint8_t kBoth = kFirstBank | kSecondBank;
  if (const json::Value* types = json::find(config.object(), "mlp_layer_types"); types != nullptr) {
    if (!types->is_array() || types->get_array().size() < spec.moe_layer.size())
      return config.complain(fmt::format("mlp_layer_types must be a list of {} entries", spec.layers));
    for (size_t i = 0; i < spec.moe_layer.size(); ++i)
      spec.moe_layer[i] = types->get_array()[i] == "sparse" ? kBoth : kDenseLayer;
    return;
  }
  const auto bounds = [&](const char* key, int fallback) {
    if (!config.has(key)) return std::pair{fallback, fallback};
    return pair_of(config, key, -1, kMaxLayers);
  };
  const auto start = bounds("moe_layer_start_index", 0);
  auto end = bounds("moe_layer_end_index", -1);
  for (int* e : {&end.first, &end.second})
    if (*e < 0) *e = spec.layers - 1;
  const int interval = config.integer_or("moe_layer_interval", 1, 1, kMaxLayers);
  const int from = std::min(start.first, start.second), to = std::max(end.first, end.second);
  for (int i = 0; i < spec.layers; ++i) {
    if ((i + 1) % interval != 0 || i < from || i > to) continue;
    const bool first = i >= start.first && i <= end.first, second = i >= start.second && i <= end.second;
    if (!first && !second) config.complain(fmt::format("layer {} lies between those of the two banks of experts", i));
    spec.moe_layer[static_cast<size_t>(i)] =
        static_cast<uint8_t>((first ? kFirstBank : 0) | (second ? kSecondBank : 0));
  }
}

// Which tokens the second bank serves (5.3). Implementations differ; FastDeploy's rule is the default.
void read_second_tokens(ConfigReader& config, MoeSpec& m) {
  constexpr int64_t kMaxId = 1 << 24;
  const int image = config.integer_or("im_patch_id", config.integer_or("image_token_id", 100295, 0, kMaxId), 0, kMaxId);
  const int start = config.integer_or("image_start_token_id", 101304, 0, kMaxId);
  const int stop = config.integer_or("image_end_token_id", 101305, 0, kMaxId);
  const int video_start = config.integer_or("video_start_token_id", 101306, 0, kMaxId);
  const int video_stop = config.integer_or("video_end_token_id", 101307, 0, kMaxId);
  const int video = config.integer_or("video_token_id", image, 0, kMaxId);
  const std::string rule = config.string_or("expert_predicate", "from_placeholder");
  const auto list = [&](std::initializer_list<int> ids) {
    for (int id : ids)
      if (!m.second_tokens.contains(id)) m.second_tokens.ids[m.second_tokens.listed++] = id;
  };
  if (rule == "from_placeholder") {
    m.second_tokens.from = image;
  } else if (rule == "placeholder") {
    list({image});
  } else if (rule == "by_type") {
    list({image, video, start, stop, video_start, video_stop});
  } else {
    config.complain(fmt::format("expert_predicate {} is not one of from_placeholder, placeholder, by_type", rule));
  }
}

// Pairs below dim / 2 - n alternate between height and width, the last n read time (5.2). The frequencies stay where
// they are, so this is a matter of axes alone.
void read_axes(ConfigReader& config, RopeSpec& rope) {
  const int half = rope.dim / 2;
  int time = config.integer_or("freq_allocation", 20, 0, 1 << 16);
  if (rope.sections.size() == 3) {
    if (rope.sections[0] != rope.sections[1])
      config.complain("mrope_section must give height and width the same number of pairs", ErrorCode::kUnsupported);
    time = rope.sections[2];
  }
  if (time > half) config.complain(fmt::format("freq_allocation {} exceeds the {} pairs of a head", time, half));
  rope.sections.clear();
  rope.pair_axis.assign(static_cast<size_t>(half), 0);
  for (int j = 0; j < half - time; ++j) rope.pair_axis[static_cast<size_t>(j)] = static_cast<uint8_t>(1 + j % 2);
}

}  // namespace

void read_ernie4_5_vl_moe(ConfigReader& config, DecoderSpec& spec) {
  read_base(config, spec, 1e-5, true);
  read_gqa(config, spec, ops::RopeStyle::kInterleaved, 500000.0);
  read_axes(config, spec.rope);
  read_dense_width(config, spec);
  if (config.boolean_or("use_bias", false))
    config.complain("use_bias with experts is not supported", ErrorCode::kUnsupported);
  read_expert_layers(config, spec);
  MoeSpec& m = spec.moe;
  std::tie(m.experts, m.second_experts) = pair_of(config, "moe_num_experts", 1, kMaxExperts);
  std::tie(m.intermediate, m.second_intermediate) = pair_of(config, "moe_intermediate_size", 1, kMaxWidth);
  m.top_k = config.integer("moe_k", 1, kMaxExperts);
  m.scoring = ops::MoeScoring::kSoftmax;
  m.renormalize = true;
  m.renorm_min = static_cast<float>(config.number_or("moe_norm_min", 1e-12, 0.0, 1.0));
  m.correction_bias = Presence::kOptional;
  m.bias_name = "moe_statics.e_score_correction_bias";
  m.shared_intermediate = config.integer_or("moe_num_shared_experts", 0, 0, 64) * m.intermediate;
  read_second_tokens(config, m);
  spec.tower_names = {"vision_model.", "vision_tower.", "resampler_model."};
}

}  // namespace tern::model
