// Typed fields of a request body. The first fault is kept, worded as FastDeploy's validation words it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace tern::serve::openai {

class Fields {
 public:
  explicit Fields(const json::Object& object) : object_(object) {}

  // Each leaves `out` alone when the field is absent or null. Numbers must be finite and inside [low, high]. Scalars
  // are read as leniently as FastDeploy's validation (pydantic) reads them: "5", 5.0 and true are integers, 0, 1 and
  // "yes" are booleans. Lists of ids are not.
  void integer(std::string_view key, std::optional<int64_t>& out, int64_t low, int64_t high);
  void integer(std::string_view key, std::optional<int32_t>& out, int32_t low, int32_t high);
  void integer(std::string_view key, int32_t& out, int32_t low, int32_t high);
  void number(std::string_view key, std::optional<double>& out, double low, double high);
  void positive(std::string_view key, std::optional<double>& out);
  void boolean(std::string_view key, bool& out);
  void boolean(std::string_view key, std::optional<bool>& out);
  void string(std::string_view key, std::string& out, size_t max_bytes);
  // A string or a list of strings; at most `max` of them.
  void strings(std::string_view key, std::vector<std::string>& out, size_t max);
  // A list of token ids, each in [0, vocab).
  void ids(std::string_view key, std::vector<int32_t>& out, int32_t vocab, size_t max);
  const json::Object* object(std::string_view key);
  const json::Value* find(std::string_view key) const { return json::find(object_, key); }

  void fail(std::string message, std::string_view param);
  bool ok() const { return !error_.has_value(); }
  const std::optional<Error>& error() const { return error_; }
  Error take_error() { return std::move(*error_); }

 private:
  const json::Object& object_;
  std::optional<Error> error_;
};

// Token ids of a JSON array, checked against the vocabulary; `param` names the field in errors.
Expected<std::vector<int32_t>> read_ids(const json::Array& array, int32_t vocab, size_t max, std::string_view param);

}  // namespace tern::serve::openai
