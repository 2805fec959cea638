#include "model/config/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

namespace tern::model {

void ConfigReader::complain(std::string what, ErrorCode code) {
  if (complaints_.empty()) code_ = code;
  complaints_.push_back(std::move(what));
}

Status ConfigReader::status() const {
  if (complaints_.empty()) return {};
  return make_error(code_, fmt::format("config.json: {}", fmt::join(complaints_, "; ")));
}

int ConfigReader::integer_or(std::string_view key, int fallback, int64_t min, int64_t max) {
  const auto v = json::get_int(object_, key);
  if (!v.ok()) {
    complain(v.error().message);
    return fallback;
  }
  if (!v->has_value()) return fallback;
  if (**v < min || **v > max) {
    complain(fmt::format("{} is {}, outside {} to {}", key, **v, min, max));
    return fallback;
  }
  return static_cast<int>(**v);
}

int ConfigReader::integer(std::string_view key, int64_t min, int64_t max) {
  if (!has(key)) complain(fmt::format("{} is missing", key));
  return integer_or(key, static_cast<int>(min), min, max);
}

double ConfigReader::number_or(std::string_view key, double fallback, double min, double max) {
  const auto v = json::get_double(object_, key);
  if (!v.ok()) {
    complain(v.error().message);
    return fallback;
  }
  if (!v->has_value()) return fallback;
  if (!std::isfinite(**v) || **v < min || **v > max) {
    complain(fmt::format("{} is {}, outside {} to {}", key, **v, min, max));
    return fallback;
  }
  return **v;
}

std::optional<bool> ConfigReader::boolean(std::string_view key) {
  auto v = json::get_bool(object_, key);
  if (!v.ok()) {
    complain(v.error().message);
    return std::nullopt;
  }
  return *v;
}

bool ConfigReader::boolean_or(std::string_view key, bool fallback) { return boolean(key).value_or(fallback); }

std::string ConfigReader::string_or(std::string_view key, std::string_view fallback) {
  auto v = json::get_string(object_, key);
  if (!v.ok()) {
    complain(v.error().message);
    return std::string(fallback);
  }
  return v->value_or(std::string(fallback));
}

std::vector<int> ConfigReader::integers(std::string_view key, int64_t min, int64_t max, size_t max_count) {
  const json::Value* v = json::find(object_, key);
  if (v == nullptr) return {};
  std::vector<int> out;
  const auto take = [&](const json::Value& e) {
    if (!e.is_int64() || e.get_int64() < min || e.get_int64() > max) return false;
    out.push_back(static_cast<int>(e.get_int64()));
    return true;
  };
  bool good = v->is_array() && v->get_array().size() <= max_count;
  if (good)
    for (const auto& e : v->get_array()) good = good && take(e);
  if (good) return out;
  complain(fmt::format("{} must be a list of at most {} integers from {} to {}", key, max_count, min, max));
  return {};
}

void merge_json(json::Object& into, const json::Object& from) {
  for (const auto& [key, value] : from) {
    json::Value* old = into.if_contains(key);
    if (value.is_null()) {
      into.erase(key);
    } else if (old != nullptr && old->is_object() && value.is_object()) {
      merge_json(old->get_object(), value.get_object());
    } else {
      into[key] = value;
    }
  }
}

Expected<json::Object> read_config(const std::string& folder, const std::string& config_name,
                                   const json::Object& overrides) {
  const std::string path = folder + "/" + config_name;
  auto value = json::parse_file(path, {.max_bytes = 4u << 20});
  if (!value.ok()) {
    if (value.error().code == ErrorCode::kNotFound)
      return make_error(ErrorCode::kNotFound,
                        fmt::format("{} is not a model folder: there is no {}", folder, config_name), "model");
    return value.error();
  }
  if (!value->is_object()) return make_error(ErrorCode::kCorrupt, fmt::format("{} is not a JSON object", path));
  json::Object object = std::move(value->get_object());
  merge_json(object, overrides);
  if (json::Value* text = object.if_contains("text_config"); text != nullptr && text->is_object()) {
    json::Object shared;
    for (const auto& [key, v] : overrides)
      if (text->get_object().contains(key)) shared[key] = v;
    merge_json(text->get_object(), shared);
  }
  return object;
}

json::Object flatten_text_config(const json::Object& config) {
  const json::Value* text = json::find(config, "text_config");
  if (text == nullptr || !text->is_object()) return config;
  json::Object out = config;
  out.erase("text_config");
  for (const auto& [key, value] : text->get_object())
    if (!value.is_null() && key != "architectures") out[key] = value;
  return out;
}

Expected<std::string> architecture_of(const json::Object& config) {
  const json::Value* list = json::find(config, "architectures");
  if (list != nullptr && list->is_array() && !list->get_array().empty() && list->get_array()[0].is_string()) {
    std::string_view name = list->get_array()[0].get_string();
    // Classes by which PaddleNLP runs the model of the same name.
    for (const std::string_view tail : {"BlockInferenceModel", "InferenceModel"})
      if (name.ends_with(tail)) {
        name.remove_suffix(tail.size());
        break;
      }
    return std::string(name);
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "config.json: architectures must be a list that names the model class");
}

std::vector<int32_t> token_ids(ConfigReader& config, std::string_view key) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const json::Value* v = json::find(config.object(), key);
  if (v == nullptr) return {};
  if (v->is_array()) return config.integers(key, 0, kMax, 1024);
  // -1 is how some files say "none".
  const int id = config.integer_or(key, -1, -1, kMax);
  return id < 0 ? std::vector<int32_t>{} : std::vector<int32_t>{id};
}

}  // namespace tern::model
