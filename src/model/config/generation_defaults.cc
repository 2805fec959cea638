#include "model/config/generation_defaults.h"

#include "model/config/config_reader.h"

namespace tern::model {
namespace {

std::optional<double> number(ConfigReader& file, std::string_view key, double min, double max) {
  if (!file.has(key)) return std::nullopt;
  return file.number_or(key, 0.0, min, max);
}

int32_t first_or(const std::vector<int32_t>& ids, int32_t fallback) { return ids.empty() ? fallback : ids.front(); }

}  // namespace

Expected<GenerationDefaults> read_generation_defaults(const std::string& folder, const json::Object& config) {
  GenerationDefaults d;
  ConfigReader base{config};
  d.eos_token_ids = token_ids(base, "eos_token_id");
  d.bos_token_id = first_or(token_ids(base, "bos_token_id"), -1);
  d.pad_token_id = first_or(token_ids(base, "pad_token_id"), -1);
  TERN_RETURN_IF_ERROR(base.status());

  auto root = json::parse_file(folder + "/generation_config.json", {.max_bytes = 1u << 20});
  if (!root.ok()) {
    if (root.error().code == ErrorCode::kNotFound) return d;
    return root.error();
  }
  if (!root->is_object())
    return make_error(ErrorCode::kCorrupt, folder + "/generation_config.json is not a JSON object");
  d.has_file = true;
  ConfigReader file{root->get_object()};
  if (const auto eos = token_ids(file, "eos_token_id"); !eos.empty()) d.eos_token_ids = eos;
  d.bos_token_id = first_or(token_ids(file, "bos_token_id"), d.bos_token_id);
  d.pad_token_id = first_or(token_ids(file, "pad_token_id"), d.pad_token_id);
  d.temperature = number(file, "temperature", 0.0, 100.0);
  d.top_p = number(file, "top_p", 0.0, 1.0);
  d.min_p = number(file, "min_p", 0.0, 1.0);
  d.repetition_penalty = number(file, "repetition_penalty", 1e-6, 100.0);
  d.frequency_penalty = number(file, "frequency_penalty", -100.0, 100.0);
  d.presence_penalty = number(file, "presence_penalty", -100.0, 100.0);
  if (file.has("top_k")) d.top_k = file.integer_or("top_k", 0, -1, 1 << 24);
  if (file.has("max_new_tokens")) d.max_new_tokens = file.integer_or("max_new_tokens", 1, 1, 1 << 30);
  d.do_sample = file.boolean("do_sample");
  if (Status s = file.status(); !s.ok()) {
    s.error().message = "generation_" + s.error().message;
    return std::move(s).error();
  }
  return d;
}

}  // namespace tern::model
