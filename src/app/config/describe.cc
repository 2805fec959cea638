#include "app/config/settings.h"
#include "app/hub/find_folder.h"
#include "app/hub/hub_plan.h"

namespace tern::app {
namespace {

bool is_secret(std::string_view flag) {
  return flag == "api-key" || flag == "admin-api-key" || flag == "scheduler-password";
}
bool is_secret_variable(std::string_view name) {
  return name == "FD_API_KEY" || name.ends_with("_TOKEN") || name.starts_with("ENCODE_FEATURE_BOS_") ||
         name == "EXPORTER_OTLP_HEADERS";
}

json::Array ids(const std::vector<int32_t>& values) { return json::Array(values.begin(), values.end()); }

// Where a name that is no folder would be fetched from.
json::Value describe_source(const Settings& s) {
  const ModelWish wish = wish_of(s.flags);
  const auto plan = hub_plan(wish.name, wish.revision, s.environment);
  if (!plan.ok()) return json::Value(nullptr);
  json::Object o = describe_plan(*plan);
  o["download"] = wish.download;
  o["caches"] =
      json::Array{json::Value(hugging_face_cache(s.environment)), json::Value(model_scope_cache(s.environment))};
  return o;
}

json::Object describe_model(const Settings& s) {
  json::Object o;
  o["found"] = !s.model.folder.empty();
  o["folder"] = s.model.folder.empty() ? json::Value(nullptr) : json::Value(s.model.folder);
  if (s.model.folder.empty()) {
    o["source"] = describe_source(s);
    return o;
  }
  o["architecture"] = s.model.architecture;
  o["max_position_embeddings"] = s.model.max_position_embeddings;
  o["vocab_size"] = s.model.vocab_size;
  o["eos_token_ids"] = ids(s.model.eos_token_ids);
  json::Object defaults;
  const auto& g = s.model.generation;
  if (g.temperature) defaults["temperature"] = *g.temperature;
  if (g.top_p) defaults["top_p"] = *g.top_p;
  if (g.top_k) defaults["top_k"] = *g.top_k;
  if (g.repetition_penalty) defaults["repetition_penalty"] = *g.repetition_penalty;
  if (g.presence_penalty) defaults["presence_penalty"] = *g.presence_penalty;
  if (g.frequency_penalty) defaults["frequency_penalty"] = *g.frequency_penalty;
  o["generation_config"] = std::move(defaults);
  o["tokenizer_folder"] = s.tokenizer_folder.empty() ? json::Value(nullptr) : json::Value(s.tokenizer_folder);
  return o;
}

}  // namespace

json::Object describe(const Settings& s) {
  json::Object flags, given, variables;
  for (const FlagSpec& flag : flag_table()) {
    const std::string key = with_underscores(flag.name);
    const bool hidden = is_secret(flag.name) && s.flags.has(flag.name);
    flags[key] = hidden ? json::Value("***") : s.flags.get(flag.name);
    if (s.flags.source(flag.name) != Source::kDefault) given[key] = source_name(s.flags.source(flag.name));
  }
  for (const std::string& name : s.environment.given_names()) {
    if (name == "HOME") continue;
    variables[name] = is_secret_variable(name) ? json::Value("***") : s.environment.get(name);
  }
  json::Object o;
  o["version"] = TERN_VERSION;
  o["flags"] = std::move(flags);
  o["sources"] = std::move(given);
  o["environment"] = std::move(variables);
  o["model"] = describe_model(s);
  describe_parts(s, o);
  if (s.paddlenlp) o["paddlenlp"] = describe_paddlenlp(*s.paddlenlp);
  o["inert"] = json::Array(s.inert.begin(), s.inert.end());
  o["warnings"] = json::Array(s.warnings.begin(), s.warnings.end());
  return o;
}

}  // namespace tern::app
