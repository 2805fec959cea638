// Typed, range-checked reading of config.json. A config is hostile input: an architecture asks for each value with the
// range that makes sense, goes on with a harmless stand-in when it is wrong, and finds all complaints in status().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace tern::model {

class ConfigReader {
 public:
  explicit ConfigReader(json::Object object) : object_(std::move(object)) {}

  // Required values; an absent one is a complaint.
  int integer(std::string_view key, int64_t min, int64_t max);
  // Absent (or null): the fallback.
  int integer_or(std::string_view key, int fallback, int64_t min, int64_t max);
  double number_or(std::string_view key, double fallback, double min, double max);
  bool boolean_or(std::string_view key, bool fallback);
  std::optional<bool> boolean(std::string_view key);
  std::string string_or(std::string_view key, std::string_view fallback);
  // A list of integers; empty when absent.
  std::vector<int> integers(std::string_view key, int64_t min, int64_t max, size_t max_count);

  bool has(std::string_view key) const { return json::find(object_, key) != nullptr; }
  const json::Object& object() const { return object_; }
  void complain(std::string what, ErrorCode code = ErrorCode::kInvalidArgument);
  // All complaints as one error.
  Status status() const;

 private:
  json::Object object_;
  std::vector<std::string> complaints_;
  ErrorCode code_ = ErrorCode::kInvalidArgument;
};

// config.json with `overrides` merged in (nested objects are merged, null deletes a key; a key that the file keeps in
// `text_config` may be given without that level). kNotFound, kCorrupt.
Expected<json::Object> read_config(const std::string& folder, const std::string& config_name,
                                   const json::Object& overrides);
void merge_json(json::Object& into, const json::Object& from);

// The text model's keys of a config: those of a nested `text_config` over those of the root, whose other keys
// (vision_config, token ids of pictures) stay. A config without one comes back as it is.
json::Object flatten_text_config(const json::Object& config);

// architectures[0], or a clear error.
Expected<std::string> architecture_of(const json::Object& config);

// A token id key that holds one id or a list.
std::vector<int32_t> token_ids(ConfigReader& config, std::string_view key);

}  // namespace tern::model
