#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <sstream>

#include "app/flags/flag_set.h"
#include "app/flags/yaml_file.h"

namespace tern::app {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;
constexpr int kMaxDepth = 16;
constexpr size_t kMaxNodes = 100'000;  // aliases can make a small file large

// A YAML scalar as JSON reads it: null, true and false, numbers, else a string. Quoted scalars stay strings.
json::Value scalar_to_json(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return json::Value(text);
  if (text == "true" || text == "True") return json::Value(true);
  if (text == "false" || text == "False") return json::Value(false);
  if (text == "null" || text == "~" || text.empty()) return json::Value(nullptr);
  auto number = json::parse(text);
  if (number.ok() && number->is_number()) return std::move(number).value();
  return json::Value(text);
}

Expected<json::Value> to_json(const YAML::Node& node, int depth, size_t& nodes) {
  if (depth > kMaxDepth) return make_error(ErrorCode::kTooLarge, "nested too deeply");
  if (++nodes > kMaxNodes) return make_error(ErrorCode::kTooLarge, "has too many values");
  if (node.IsMap()) {
    json::Object object;
    for (const auto& item : node) {
      TERN_ASSIGN_OR_RETURN(json::Value value, to_json(item.second, depth + 1, nodes));
      object[item.first.Scalar()] = std::move(value);
    }
    return json::Value(std::move(object));
  }
  if (node.IsSequence()) {
    json::Array array;
    for (const auto& item : node) {
      TERN_ASSIGN_OR_RETURN(json::Value value, to_json(item, depth + 1, nodes));
      array.push_back(std::move(value));
    }
    return json::Value(std::move(array));
  }
  return node.IsNull() ? json::Value(nullptr) : scalar_to_json(node);
}

Expected<std::vector<std::string>> texts_of(const YAML::Node& node) {
  size_t nodes = 0;
  if (node.IsScalar()) return std::vector<std::string>{node.Scalar()};
  if (!node.IsSequence()) {
    TERN_ASSIGN_OR_RETURN(json::Value value, to_json(node, 0, nodes));
    return std::vector<std::string>{json::dump(value)};
  }
  std::vector<std::string> texts;
  for (const auto& item : node) {
    if (item.IsScalar()) {
      texts.push_back(item.Scalar());
      continue;
    }
    TERN_ASSIGN_OR_RETURN(json::Value value, to_json(item, 0, nodes));
    texts.push_back(json::dump(value));
  }
  return texts;
}

Error in_file(const std::string& path, const YAML::Node& at, const Error& error) {
  return make_error(error.code, fmt::format("{}, line {}: {}", path, at.Mark().line + 1, error.message), error.param);
}

Status read_mapping(const YAML::Node& root, const std::string& path, FlagSet& flags) {
  if (root.IsNull()) return {};
  if (!root.IsMap()) return make_error(ErrorCode::kCorrupt, fmt::format("{}: is no mapping of flags to values", path));
  for (const auto& item : root) {
    if (!item.first.IsScalar()) return make_error(ErrorCode::kCorrupt, fmt::format("{}: a key is no plain word", path));
    const std::string& key = item.first.Scalar();
    const FlagSpec* flag = find_flag(key);
    if (flag == nullptr || flag->name == "config") {
      const std::string near = nearest_flag(key);
      const std::string hint = near.empty() ? "" : fmt::format("; the nearest is {}", with_underscores(near));
      return in_file(path, item.first,
                     make_error(ErrorCode::kInvalidArgument, fmt::format("unknown key {}{}", key, hint)));
    }
    if (item.second.IsNull()) continue;
    auto texts = texts_of(item.second);
    if (!texts.ok()) return in_file(path, item.first, texts.error());
    const Status status = flags.set_texts(*flag, *texts, Source::kFile);
    if (!status.ok()) return in_file(path, item.first, status.error());
  }
  return {};
}

// The text of a file of at most kMaxFileBytes (or one byte more).
Expected<std::string> read_text(const std::string& path, const char* flag) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (!file || !(file.read(text.data(), static_cast<std::streamsize>(text.size())) || file.eof())) {
    return make_error(ErrorCode::kNotFound, fmt::format("--{}: {} cannot be read", flag, path), flag);
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

Status read_config_text(const std::string& text, const std::string& path, FlagSet& flags) {
  if (text.size() > kMaxFileBytes) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("{}: a configuration file has at most {} bytes", path, kMaxFileBytes));
  }
  // yaml-cpp reports by exceptions; they end here.
  try {
    return read_mapping(YAML::Load(text), path, flags);
  } catch (const YAML::Exception& error) {
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", path, error.what()));
  }
}

Status read_config_file(const std::string& path, FlagSet& flags) {
  TERN_ASSIGN_OR_RETURN(const std::string text, read_text(path, "config"));
  return read_config_text(text, path, flags);
}

Expected<json::Object> read_yaml_object(const std::string& path, const char* flag) {
  TERN_ASSIGN_OR_RETURN(const std::string text, read_text(path, flag));
  if (text.size() > kMaxFileBytes)
    return make_error(ErrorCode::kTooLarge, fmt::format("--{}: {} has over {} bytes", flag, path, kMaxFileBytes), flag);
  try {
    size_t nodes = 0;
    TERN_ASSIGN_OR_RETURN(json::Value value, to_json(YAML::Load(text), 0, nodes));
    if (value.is_null()) return json::Object();
    if (!value.is_object())
      return make_error(ErrorCode::kCorrupt, fmt::format("--{}: {} is no mapping", flag, path), flag);
    return std::move(value.get_object());
  } catch (const YAML::Exception& error) {
    return make_error(ErrorCode::kCorrupt, fmt::format("--{}: {}: {}", flag, path, error.what()), flag);
  }
}

}  // namespace tern::app
