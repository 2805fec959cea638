#include "serve/openai/json/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "serve/openai/json/error.h"

namespace tern::serve::openai {
namespace {

// An integer, or a float without a fraction; nothing for anything else and for numbers beyond int64.
std::optional<int64_t> as_integer(const json::Value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double d = value.get_double();
    if (std::fabs(d) < 9.0e15 && d == std::floor(d)) return static_cast<int64_t>(d);
  }
  return std::nullopt;
}

}  // namespace

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number value{};
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// "5" and "5.0", as Python's pydantic reads them.
std::optional<int64_t> parse_integer(std::string_view text) {
  const size_t point = text.find('.');
  if (point != std::string_view::npos) {
    const std::string_view fraction = trimmed(text.substr(point + 1));
    if (fraction.empty() || fraction.find_first_not_of('0') != std::string_view::npos) return std::nullopt;
    text = text.substr(0, point);
  }
  return parse_number<int64_t>(text);
}

std::optional<bool> parse_boolean(std::string_view text) {
  std::string lower(text.substr(0, 8));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (text.size() > 8) return std::nullopt;
  for (const std::string_view yes : {"true", "t", "yes", "y", "on", "1"}) {
    if (lower == yes) return true;
  }
  for (const std::string_view no : {"false", "f", "no", "n", "off", "0"}) {
    if (lower == no) return false;
  }
  return std::nullopt;
}

// The value of a field that is an integer; `problem` says why there is none.
std::optional<int64_t> lenient_integer(const json::Value& value, std::string_view& problem) {
  problem = "Input should be a valid integer";
  if (value.is_bool()) return value.get_bool() ? 1 : 0;
  if (value.is_string()) {
    problem = "Input should be a valid integer, unable to parse string as an integer";
    return parse_integer(value.get_string());
  }
  if (value.is_double() && value.get_double() != std::floor(value.get_double())) {
    problem = "Input should be a valid integer, got a number with a fractional part";
  }
  return as_integer(value);
}

}  // namespace

Expected<std::vector<int32_t>> read_ids(const json::Array& array, int32_t vocab, size_t max, std::string_view param) {
  if (array.size() > max) {
    return invalid_value(fmt::format("List should have at most {} items, not {}", max, array.size()),
                         std::string(param));
  }
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const auto& item : array) {
    const auto id = as_integer(item);
    if (!id) return invalid_value("Input should be a valid integer", std::string(param));
    if (*id < 0 || *id >= vocab) {
      return invalid_value(fmt::format("Token id {} is out of range: the vocabulary has {} tokens", *id, vocab),
                           std::string(param));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

void Fields::fail(std::string message, std::string_view param) {
  if (!error_) error_ = invalid_value(std::move(message), std::string(param));
}

void Fields::integer(std::string_view key, std::optional<int64_t>& out, int64_t low, int64_t high) {
  const json::Value* v = find(key);
  if (v == nullptr) return;
  std::string_view problem;
  const auto number = lenient_integer(*v, problem);
  if (!number) {
    if (v->is_uint64()) return fail(fmt::format("Input should be less than or equal to {}", high), key);
    return fail(std::string(problem), key);
  }
  if (*number < low) return fail(fmt::format("Input should be greater than or equal to {}", low), key);
  if (*number > high) return fail(fmt::format("Input should be less than or equal to {}", high), key);
  out = *number;
}

void Fields::integer(std::string_view key, std::optional<int32_t>& out, int32_t low, int32_t high) {
  std::optional<int64_t> wide;
  integer(key, wide, low, high);
  if (wide) out = static_cast<int32_t>(*wide);
}

void Fields::integer(std::string_view key, int32_t& out, int32_t low, int32_t high) {
  std::optional<int64_t> wide;
  integer(key, wide, low, high);
  if (wide) out = static_cast<int32_t>(*wide);
}

void Fields::number(std::string_view key, std::optional<double>& out, double low, double high) {
  const json::Value* v = find(key);
  if (v == nullptr) return;
  double value = 0;
  if (v->is_double())
    value = v->get_double();
  else if (v->is_int64())
    value = static_cast<double>(v->get_int64());
  else if (v->is_uint64())
    value = static_cast<double>(v->get_uint64());
  else if (v->is_bool())
    value = v->get_bool() ? 1 : 0;
  else if (!v->is_string())
    return fail("Input should be a valid number", key);
  else if (const auto parsed = parse_number<double>(v->get_string()))
    value = *parsed;
  else
    return fail("Input should be a valid number, unable to parse string as a number", key);
  if (!std::isfinite(value)) return fail("Input should be a finite number", key);
  if (value < low) return fail(fmt::format("Input should be greater than or equal to {:g}", low), key);
  if (value > high) return fail(fmt::format("Input should be less than or equal to {:g}", high), key);
  out = value;
}

void Fields::positive(std::string_view key, std::optional<double>& out) {
  std::optional<double> value;
  number(key, value, std::numeric_limits<double>::lowest(), std::numeric_limits<float>::max());
  if (!value) return;
  if (static_cast<float>(*value) <= 0) return fail("Input should be greater than 0", key);
  out = value;
}

void Fields::boolean(std::string_view key, bool& out) {
  std::optional<bool> value;
  boolean(key, value);
  if (value) out = *value;
}

void Fields::boolean(std::string_view key, std::optional<bool>& out) {
  const json::Value* v = find(key);
  if (v == nullptr) return;
  if (v->is_bool()) {
    out = v->get_bool();
  } else if (v->is_string()) {
    out = parse_boolean(v->get_string());
  } else if (const auto number = as_integer(*v); number == 0 || number == 1) {
    out = *number == 1;
  } else {
    out.reset();
  }
  if (out) return;
  fail(v->is_string() || v->is_number() ? "Input should be a valid boolean, unable to interpret input"
                                        : "Input should be a valid boolean",
       key);
}

void Fields::string(std::string_view key, std::string& out, size_t max_bytes) {
  const json::Value* v = find(key);
  if (v == nullptr) return;
  if (!v->is_string()) return fail("Input should be a valid string", key);
  if (v->get_string().size() > max_bytes) {
    return fail(fmt::format("String should have at most {} bytes", max_bytes), key);
  }
  out.assign(v->get_string().data(), v->get_string().size());
}

void Fields::strings(std::string_view key, std::vector<std::string>& out, size_t max) {
  const json::Value* v = find(key);
  if (v == nullptr) return;
  if (v->is_string()) {
    out.assign(1, std::string(v->get_string()));
    return;
  }
  if (!v->is_array()) return fail("Input should be a valid string or list of strings", key);
  if (v->get_array().size() > max) {
    return fail(fmt::format("List should have at most {} items, not {}", max, v->get_array().size()), key);
  }
  out.clear();
  for (const auto& item : v->get_array()) {
    if (!item.is_string()) return fail("Input should be a valid string", key);
    out.emplace_back(item.get_string());
  }
}

void Fields::ids(std::string_view key, std::vector<int32_t>& out, int32_t vocab, size_t max) {
  const json::Value* v = find(key);
  if (v == nullptr) return;
  if (!v->is_array()) return fail("Input should be a valid list", key);
  auto read = read_ids(v->get_array(), vocab, max, key);
  if (read.ok())
    out = *std::move(read);
  else if (!error_)
    error_ = std::move(read).error();
}

const json::Object* Fields::object(std::string_view key) {
  const json::Value* v = find(key);
  if (v == nullptr) return nullptr;
  if (!v->is_object()) return fail("Input should be a valid dictionary", key), nullptr;
  return &v->get_object();
}

}  // namespace tern::serve::openai
