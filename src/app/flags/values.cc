#include "app/flags/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tern::app {
namespace {

constexpr json::Limits kJsonLimits{.max_bytes = 1u << 20, .max_depth = 32};

Error wrong(std::string_view label, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", label, what), std::string(label));
}

// Values are repeated in messages; a long one is cut.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 60;
  return text.size() <= kMost ? fmt::format("\"{}\"", text) : fmt::format("\"{}...\"", text.substr(0, kMost));
}

Status check_range(std::string_view label, const ValueRules& rules, double value, std::string_view text) {
  if (value < rules.min) return wrong(label, fmt::format("{} is below {}", text, rules.min));
  if (value > rules.max) return wrong(label, fmt::format("{} is above {:.0f}", text, rules.max));
  return {};
}

Expected<json::Value> parse_int(std::string_view label, const ValueRules& rules, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return wrong(label, fmt::format("{} is out of range", shown(text)));
  if (error != std::errc() || end != text.data() + text.size()) {
    return wrong(label, fmt::format("{} is not a whole number", shown(text)));
  }
  TERN_RETURN_IF_ERROR(check_range(label, rules, static_cast<double>(value), text));
  return json::Value(value);
}

Expected<json::Value> parse_float(std::string_view label, const ValueRules& rules, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return wrong(label, fmt::format("{} is not a number", shown(text)));
  }
  TERN_RETURN_IF_ERROR(check_range(label, rules, value, text));
  return json::Value(value);
}

Expected<json::Value> parse_object(std::string_view label, std::string_view text) {
  auto value = json::parse(text, kJsonLimits);
  if (!value.ok()) return wrong(label, "is not JSON: " + value.error().message);
  if (!value->is_object()) return wrong(label, fmt::format("{} is not a JSON object", shown(text)));
  return std::move(value).value();
}

Expected<json::Value> parse_choice(std::string_view label, const ValueRules& rules, std::string_view text) {
  const auto choices = split(rules.choices, '|');
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return json::Value(text);
  return wrong(label, fmt::format("{} is none of {}", shown(text), fmt::join(choices, ", ")));
}

// ["a", "b"]: the form of vLLM. A list of host names may start with '[' too, of an IPv6 address.
bool is_json_list(std::string_view text) { return text == "[]" || text.starts_with("[\""); }

Status add_json_list(std::string_view label, std::string_view text, json::Array& items) {
  auto value = json::parse(text, kJsonLimits);
  if (!value.ok()) return wrong(label, "is not JSON: " + value.error().message);
  for (auto& item : value->as_array()) {
    if (!item.is_string()) return wrong(label, fmt::format("{} holds something that is no text", shown(text)));
    items.push_back(std::move(item));
  }
  return {};
}

Expected<json::Value> parse_list(std::string_view label, const ValueRules& rules,
                                 const std::vector<std::string>& texts) {
  json::Array items;
  for (const std::string& text : texts) {
    if (rules.type == ValueType::kRepeated) {
      if (text.empty()) return wrong(label, "is empty");
      items.emplace_back(text);
      continue;
    }
    if (rules.type == ValueType::kList && is_json_list(text)) {
      TERN_RETURN_IF_ERROR(add_json_list(label, text, items));
      continue;
    }
    for (std::string_view part : split(text, ',')) {
      while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
      while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
      if (part.empty()) continue;
      if (rules.type == ValueType::kIntList) {
        TERN_ASSIGN_OR_RETURN(json::Value number, parse_int(label, rules, part));
        items.push_back(std::move(number));
      } else {
        items.emplace_back(part);
      }
    }
  }
  return json::Value(std::move(items));
}

}  // namespace

bool is_neutral(std::string_view neutral, const json::Value& value) {
  if (value.is_null()) return true;
  if (value.is_array()) return value.get_array().empty();
  if (value.is_object()) return value.get_object().empty();
  const auto words = split(neutral, '|');
  if (value.is_number()) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      auto number = parse_float("", {}, word);
      return number.ok() && number->as_double() == value.to_number<double>();
    });
  }
  if (!value.is_string()) return false;
  const std::string_view text(value.as_string());
  if (text.empty() || text == "none" || text == "None") return true;
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::optional<bool> parse_bool(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view yes : {"true", "1", "yes", "on"}) {
    if (lower == yes) return true;
  }
  for (const std::string_view no : {"false", "0", "no", "off"}) {
    if (lower == no) return false;
  }
  return std::nullopt;
}

Expected<json::Value> parse_value(std::string_view label, const ValueRules& rules,
                                  const std::vector<std::string>& texts) {
  const bool list =
      rules.type == ValueType::kList || rules.type == ValueType::kIntList || rules.type == ValueType::kRepeated;
  if (list) return parse_list(label, rules, texts);
  if (texts.size() != 1) return wrong(label, "needs one value");
  const std::string& text = texts[0];
  switch (rules.type) {
    case ValueType::kInt:
      return parse_int(label, rules, text);
    case ValueType::kFloat:
      return parse_float(label, rules, text);
    case ValueType::kJson:
      return parse_object(label, text);
    case ValueType::kEnum:
      return parse_choice(label, rules, text);
    case ValueType::kBool:
      if (const auto value = parse_bool(text)) return json::Value(*value);
      return wrong(label, fmt::format("{} is neither true nor false", shown(text)));
    case ValueType::kStringOrJson:
      if (!text.empty() && text.front() == '{') return parse_object(label, text);
      return json::Value(text);
    default:
      return json::Value(text);
  }
}

}  // namespace tern::app
