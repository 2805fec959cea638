#include "app/config/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "model/config/config_reader.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;
constexpr json::Limits kFileLimits{.max_bytes = 16u << 20, .max_depth = 64};

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Status add_ids(const json::Object& config, std::string_view key, std::vector<int32_t>& ids) {
  const json::Value* value = json::find(config, key);
  if (value == nullptr) return {};
  json::Array one;
  if (!value->is_array()) one.push_back(*value);
  for (const json::Value& item : value->is_array() ? value->get_array() : one) {
    const int64_t* id = item.if_int64();
    if (id == nullptr || *id > std::numeric_limits<int32_t>::max()) {
      return make_error(ErrorCode::kCorrupt, fmt::format("{} is neither a token id nor a list of them", key));
    }
    // Some checkpoints write -1 for "none".
    if (*id < 0 || std::find(ids.begin(), ids.end(), *id) != ids.end()) continue;
    ids.push_back(static_cast<int32_t>(*id));
  }
  return {};
}

Expected<int64_t> positive(const json::Object& config, std::string_view key) {
  TERN_ASSIGN_OR_RETURN(const auto value, json::get_int(config, key));
  if (!value) return 0;
  if (*value <= 0 || *value > (int64_t{1} << 31)) {
    return make_error(ErrorCode::kCorrupt, fmt::format("{} is {}", key, *value));
  }
  return *value;
}

Error in_file(const std::string& path, const Error& error) {
  return make_error(error.code, error.message.starts_with(path) ? error.message : path + ": " + error.message);
}

Status read_file(const std::string& path, Status (*read)(const json::Object&, ModelFacts&), ModelFacts& facts) {
  auto value = json::parse_file(path, kFileLimits);
  if (!value.ok()) return in_file(path, value.error());
  if (!value->is_object()) return make_error(ErrorCode::kCorrupt, path + ": is no JSON object");
  const Status status = read(value->get_object(), facts);
  return status.ok() ? Status() : in_file(path, status.error());
}

}  // namespace

Status read_config_json(const json::Object& config, ModelFacts& facts) {
  if (const json::Value* names = json::find(config, "architectures")) {
    const json::Array* list = names->if_array();
    if (list == nullptr || list->empty() || !list->front().is_string()) {
      return make_error(ErrorCode::kCorrupt, "architectures is no list of names");
    }
    TERN_ASSIGN_OR_RETURN(facts.architecture, model::architecture_of(config));
  }
  const json::Value* vision = json::find(config, "vision_config");
  facts.pictures = vision != nullptr && vision->is_object();
  const json::Object text = model::flatten_text_config(config);
  TERN_ASSIGN_OR_RETURN(facts.max_position_embeddings, positive(text, "max_position_embeddings"));
  TERN_ASSIGN_OR_RETURN(facts.vocab_size, positive(text, "vocab_size"));
  return add_ids(text, "eos_token_id", facts.eos_token_ids);
}

Status read_generation_json(const json::Object& config, ModelFacts& facts) {
  TERN_RETURN_IF_ERROR(add_ids(config, "eos_token_id", facts.eos_token_ids));
  auto& g = facts.generation;
  struct Number {
    const char* key;
    std::optional<double>* place;
    double min, max;
  };
  const Number numbers[] = {{"temperature", &g.temperature, 0, 1e6},
                            {"top_p", &g.top_p, 0, 1},
                            {"repetition_penalty", &g.repetition_penalty, 1e-6, 1e6},
                            {"presence_penalty", &g.presence_penalty, -2, 2},
                            {"frequency_penalty", &g.frequency_penalty, -2, 2}};
  for (const Number& number : numbers) {
    TERN_ASSIGN_OR_RETURN(*number.place, json::get_double(config, number.key));
    if (*number.place && !(**number.place >= number.min && **number.place <= number.max)) {
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("{} is {}, outside [{}, {}]", number.key, **number.place, number.min, number.max));
    }
  }
  TERN_ASSIGN_OR_RETURN(const auto top_k, json::get_int(config, "top_k"));
  if (top_k) {
    if (*top_k < -1 || *top_k > std::numeric_limits<int32_t>::max()) {
      return make_error(ErrorCode::kCorrupt, fmt::format("top_k is {}", *top_k));
    }
    g.top_k = static_cast<int32_t>(*top_k);
  }
  return {};
}

Expected<ModelFacts> read_model_facts(const std::string& folder, const std::string& config_name,
                                      const json::Object& overrides) {
  ModelFacts facts;
  facts.folder = folder;
  if (folder.empty()) return facts;
  const std::string config = folder + "/" + config_name;
  if (!is_file(config)) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("{} has no {}; --model names a folder with {}, safetensors and tokenizer files",
                                  folder, config_name, config_name),
                      "model");
  }
  auto object = model::read_config(folder, config_name, overrides);
  if (!object.ok()) return in_file(config, object.error());
  if (const Status status = read_config_json(*object, facts); !status.ok()) return in_file(config, status.error());
  const std::string generation = folder + "/generation_config.json";
  if (is_file(generation)) TERN_RETURN_IF_ERROR(read_file(generation, read_generation_json, facts));
  return facts;
}

Expected<ModelFacts> read_model_facts(const std::string& folder, const FlagSet& flags) {
  const json::Object* overrides = flags.get("model-override").if_object();
  return read_model_facts(folder, flags.text("model-config-name"), overrides ? *overrides : json::Object());
}

}  // namespace tern::app
