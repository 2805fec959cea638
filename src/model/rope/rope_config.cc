#include <fmt/format.h>

#include <cmath>

#include "model/rope/rope_frequencies.h"

namespace tern::model {
namespace {

// rope_parameters, else rope_scaling, else an empty object. Files that keep one entry per layer type have all the same
// here: sliding layers are refused elsewhere.
json::Object scaling_object(ConfigReader& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json::Value* v = json::find(config.object(), key);
    if (v == nullptr) continue;
    if (!v->is_object()) {
      config.complain(fmt::format("{} must be an object", key));
      return {};
    }
    const json::Value* full = json::find(v->get_object(), "full_attention");
    if (full != nullptr && full->is_object()) return full->get_object();
    return v->get_object();
  }
  return {};
}

RopeScaling scaling_of(ConfigReader& rope) {
  // Some files hold both spellings; the newer one counts.
  const std::string type = rope.string_or("rope_type", rope.string_or("type", "default"));
  if (type == "default" || type == "mrope" || type == "ernie_3d") return RopeScaling::kDefault;
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "dynamic") return RopeScaling::kDynamic;
  if (type == "llama3") return RopeScaling::kLlama3;
  if (type == "yarn" || type == "deepseek_yarn") return RopeScaling::kYarn;
  rope.complain(
      fmt::format("rope scaling {} is not known (default, linear, dynamic, llama3, yarn and mrope are)", type),
      ErrorCode::kUnsupported);
  return RopeScaling::kDefault;
}

void read_scaling(ConfigReader& rope, RopeSpec& s) {
  constexpr double kHuge = 1e9;
  s.scaling = scaling_of(rope);
  if (s.scaling != RopeScaling::kDefault) {
    s.original_max_position = rope.number_or("original_max_position_embeddings", s.max_position, 1.0, kHuge);
    // Only when the factor is absent may it be derived from the two lengths (models-other.md 1.2).
    if (!rope.has("factor") && s.scaling == RopeScaling::kYarn && rope.has("original_max_position_embeddings")) {
      s.factor = s.max_position / s.original_max_position;
    } else if (!rope.has("factor")) {
      rope.complain("rope scaling has no factor");
    } else {
      s.factor = rope.number_or("factor", 1.0, 1e-3, 1e6);
    }
  }
  if (s.scaling == RopeScaling::kLlama3) {
    if (!rope.has("original_max_position_embeddings"))
      rope.complain("llama3 rope scaling has no original_max_position_embeddings");
    s.low_freq_factor = rope.number_or("low_freq_factor", 1.0, 1e-6, 1e6);
    s.high_freq_factor = rope.number_or("high_freq_factor", 4.0, 1e-6, 1e6);
    if (s.high_freq_factor <= s.low_freq_factor) rope.complain("high_freq_factor must exceed low_freq_factor");
  }
  if (s.scaling == RopeScaling::kYarn) {
    s.beta_fast = rope.number_or("beta_fast", 32.0, 1e-6, 1e6);
    s.beta_slow = rope.number_or("beta_slow", 1.0, 1e-6, 1e6);
    if (rope.has("attention_factor")) s.attention_factor = rope.number_or("attention_factor", 1.0, 1e-6, 1e6);
    s.mscale = rope.number_or("mscale", 0.0, 0.0, 1e3);
    s.mscale_all_dim = rope.number_or("mscale_all_dim", 0.0, 0.0, 1e3);
    s.truncate = rope.boolean_or("truncate", true);
  }
  s.sections = rope.integers("mrope_section", 0, 1 << 16, 3);
  s.interleaved_sections = rope.boolean_or("mrope_interleaved", false);
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, ops::RopeStyle style, int head_dim, double default_theta,
                   double default_partial) {
  RopeSpec s;
  s.style = style;
  s.max_position = config.integer_or("max_position_embeddings", 2048, 1, 1 << 28);
  s.position_divisor = config.number_or("compression_ratio", 1.0, 1e-6, 1e6);
  ConfigReader rope{scaling_object(config)};
  const double theta = config.number_or("rope_theta", default_theta, 1.0, 1e15);
  s.theta = rope.number_or("rope_theta", theta, 1.0, 1e15);
  const double partial = config.number_or("partial_rotary_factor", default_partial, 1e-3, 1.0);
  s.dim = static_cast<int>(head_dim * rope.number_or("partial_rotary_factor", partial, 1e-3, 1.0));
  read_scaling(rope, s);
  if (s.dim < 2 || s.dim % 2 != 0) config.complain(fmt::format("rotary width {} is not a positive even number", s.dim));
  if (!s.sections.empty()) {
    int sum = 0;
    for (int n : s.sections) sum += n;
    if (s.sections.size() != 3 || sum != s.dim / 2)
      rope.complain(fmt::format("mrope_section must hold three numbers that add up to {}", s.dim / 2));
  }
  if (const Status status = rope.status(); !status.ok()) {
    config.complain(status.error().message.substr(sizeof("config.json: ") - 1), status.error().code);
    s.sections.clear();
  }
  return s;
}

}  // namespace tern::model
