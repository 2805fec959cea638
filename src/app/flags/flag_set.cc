#include "app/flags/flag_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/flags/json_text.h"
#include "app/flags/values.h"
#include "base/check.h"

namespace tern::app {
namespace {

Error refused(const FlagSpec& flag, const std::string& value) {
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("--{}{}{} is not available: {}", flag.name, value.empty() ? "" : " ", value, flag.reason),
      std::string(flag.name));
}

// The text of a value that a `refused` list would name.
std::string plain_text(const json::Value& value) {
  if (value.is_string()) return std::string(value.as_string());
  return json_line(value);
}

ValueRules rules_of(const FlagSpec& flag) { return {flag.type, flag.choices, flag.min, flag.max}; }

}  // namespace

std::string_view source_name(Source source) {
  switch (source) {
    case Source::kDefault:
      return "default";
    case Source::kDerived:
      return "derived";
    case Source::kEnvironment:
      return "environment";
    case Source::kFile:
      return "file";
    case Source::kCommandLine:
      return "command line";
  }
  return "";
}

FlagSet::FlagSet() {
  for (const FlagSpec& flag : flag_table()) {
    Entry entry;
    if (!flag.fallback.empty()) {
      auto value = parse_value(flag.name, rules_of(flag), {std::string(flag.fallback)});
      TERN_CHECK_MSG(value.ok(), fmt::format("default of --{}", flag.name));
      entry.value = std::move(value).value();
    }
    entries_.emplace(std::string(flag.name), std::move(entry));
  }
}

const FlagSet::Entry& FlagSet::entry(std::string_view name) const {
  const auto found = entries_.find(std::string(name));
  TERN_CHECK_MSG(found != entries_.end(), std::string(name));
  return found->second;
}

Status FlagSet::set_texts(const FlagSpec& flag, const std::vector<std::string>& texts, Source source) {
  if (flag.support == Support::kRefused) return refused(flag, "");
  const bool words = flag.type != ValueType::kInt && flag.type != ValueType::kFloat && flag.type != ValueType::kBool;
  if (flag.support == Support::kInert && words && texts.size() == 1 &&
      is_neutral(flag.neutral, json::Value(texts[0]))) {
    // A word for nothing, such as the "none" of a choice or of an object: the default, since nothing reads it.
    set(flag.name, FlagSet().get(flag.name), source);
    return {};
  }
  TERN_ASSIGN_OR_RETURN(json::Value value, parse_value(fmt::format("--{}", flag.name), rules_of(flag), texts));
  const std::string text = plain_text(value);
  const auto bad = split(flag.refused, '|');
  if (std::find(bad.begin(), bad.end(), text) != bad.end()) return refused(flag, text == "true" ? "" : text);
  set(flag.name, std::move(value), source);
  return {};
}

void FlagSet::set(std::string_view name, json::Value value, Source source) {
  const auto found = entries_.find(std::string(name));
  TERN_CHECK_MSG(found != entries_.end(), std::string(name));
  found->second = Entry{std::move(value), source};
}

double FlagSet::number(std::string_view name) const {
  const json::Value& value = get(name);
  return value.is_int64() ? static_cast<double>(value.as_int64()) : value.as_double();
}

std::string FlagSet::text(std::string_view name) const {
  const json::Value& value = get(name);
  return value.is_null() ? std::string() : plain_text(value);
}

std::vector<std::string> FlagSet::texts(std::string_view name) const {
  std::vector<std::string> result;
  if (const json::Array* items = get(name).if_array()) {
    for (const json::Value& item : *items) result.push_back(plain_text(item));
  }
  return result;
}

}  // namespace tern::app
