// JSON from outside with limits, over Boost.JSON. Key order is kept (templates print objects in the order they came).
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tern::json {

using Value = boost::json::value;
using Object = boost::json::object;
using Array = boost::json::array;

struct Limits {
  size_t max_bytes = 64u << 20;
  size_t max_depth = 64;
  size_t max_nodes = 64u << 20;  // values: elements, members and the whole
  // Bytes the values may take: so many times those of the text, or `free_memory` when that is more. 0: no bound.
  size_t max_memory_ratio = 0;
  size_t free_memory = 16u << 20;
};

// What the values of a text will take, found without making one of them.
struct Extent {
  size_t nodes = 0;
  size_t memory = 0;  // bytes, an upper bound
  // (number of the container in the text's order, its members), for those that are worth reserving.
  std::vector<std::pair<uint32_t, uint32_t>> large;
};
// One pass over the text, which need not be valid. Errors: a limit is exceeded (kTooLarge).
Expected<Extent> measure(std::string_view text, const Limits& limits);

// Strict JSON: one value, valid UTF-8, nothing after it. Size and nodes are checked before anything is made, depth
// while parsing. Memory besides the text: the values, each made once in its place. Throws std::bad_alloc.
Expected<Value> parse(std::string_view text, const Limits& limits = {});
// The same with what measure() has found.
Expected<Value> parse(std::string_view text, const Limits& limits, const Extent& extent);
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
