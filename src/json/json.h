// JSON from outside with limits, over Boost.JSON. Key order is kept (templates print objects in the order they came).
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tern::json {

using Value = boost::json::value;
using Object = boost::json::object;
using Array = boost::json::array;

struct Limits {
  size_t max_bytes = 64u << 20;
  size_t max_depth = 64;
};

// Strict JSON: one value, valid UTF-8, nothing after it. Depth and size are checked while parsing.
Expected<Value> parse(std::string_view text, const Limits& limits = {});
Expected<Value> parse_file(const std::string& path, const Limits& limits = {});
std::string dump(const Value& value);

// Typed look-ups: nothing when the key is absent or null; an error that names the key when the type is wrong or the
// number does not fit.
Expected<std::optional<int64_t>> get_int(const Object& object, std::string_view key);
Expected<std::optional<double>> get_double(const Object& object, std::string_view key);
Expected<std::optional<bool>> get_bool(const Object& object, std::string_view key);
Expected<std::optional<std::string>> get_string(const Object& object, std::string_view key);
// The value under the key, or null when absent or JSON null.
const Value* find(const Object& object, std::string_view key);

// Appends `text` as a quoted JSON string (invalid UTF-8 becomes U+FFFD).
void append_quoted(std::string& out, std::string_view text);
// Appends a number as Python's json module prints a float: shortest form that reads back equal, with ".0" when whole.
void append_double(std::string& out, double value);

}  // namespace tern::json
