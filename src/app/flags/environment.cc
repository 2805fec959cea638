#include "app/flags/environment.h"

#include <algorithm>

#include <fmt/format.h>

#include "app/flags/values.h"
#include "base/check.h"

extern char** environ;

namespace tern::app {
namespace {

ValueRules rules_of(const VariableSpec& spec) { return {spec.type, spec.choices, spec.min, spec.max}; }

bool matches(const VariableSpec& spec, std::string_view name) {
  if (spec.name.ends_with('*')) return name.starts_with(spec.name.substr(0, spec.name.size() - 1));
  return name == spec.name;
}

// The row of a variable, or null.
const VariableSpec* find_row(std::string_view name, std::span<const VariableSpec> also) {
  for (const std::span<const VariableSpec> table : {std::span<const VariableSpec>(variable_table()), also}) {
    for (const VariableSpec& spec : table) {
      if (matches(spec, name)) return &spec;
    }
  }
  return nullptr;
}

}  // namespace

std::string_view group_title(VariableGroup group) {
  switch (group) {
    case VariableGroup::kLogging:
      return "Logging and diagnostics";
    case VariableGroup::kSource:
      return "Model source and tokenizer";
    case VariableGroup::kRequests:
      return "Request limits";
    case VariableGroup::kScheduling:
      return "Scheduling and cache";
    case VariableGroup::kKernels:
      return "Kernels";
    case VariableGroup::kClusters:
      return "Disaggregation and training";
    case VariableGroup::kTern:
      return "Tern";
    case VariableGroup::kPaddleNlp:
      return "The PaddleNLP server";
  }
  return "";
}

const std::vector<VariableSpec>& variable_table() {
  static const std::vector<VariableSpec> table = [] {
    std::vector<VariableSpec> all;
    for (const auto part : {hub_variables(), acting_variables(), idle_variables()})
      all.insert(all.end(), part.begin(), part.end());
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.group < b.group; });
    return all;
  }();
  return table;
}

Environment::Environment() {
  for (const VariableSpec& spec : variable_table()) values_.emplace(std::string(spec.name), fallback(spec));
}

json::Value Environment::fallback(const VariableSpec& spec) {
  if (spec.fallback.empty()) return {};
  auto parsed = parse_value(spec.name, rules_of(spec), {std::string(spec.fallback)});
  TERN_CHECK_MSG(parsed.ok(), std::string(spec.name));
  return std::move(parsed).value();
}

Environment::Pairs Environment::of_process() {
  Pairs pairs;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) pairs.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return pairs;
}

Expected<Environment> Environment::from(const Pairs& pairs, std::span<const VariableSpec> also) {
  Environment result;
  for (const VariableSpec& spec : also) result.values_.emplace(std::string(spec.name), fallback(spec));
  for (const auto& [name, text] : pairs) {
    if (text.empty()) continue;
    const VariableSpec* const spec = find_row(name, also);
    if (spec == nullptr) {
      if (name.starts_with("FD_")) result.unknown_.push_back(name);
      continue;
    }
    if (spec->support == Support::kRefused) {
      return make_error(ErrorCode::kUnsupported, fmt::format("{} is not available: {}", name, spec->reason), name);
    }
    TERN_ASSIGN_OR_RETURN(json::Value value, parse_value(name, rules_of(*spec), {text}));
    const auto bad = split(spec->refused, '|');
    if (std::find(bad.begin(), bad.end(), value.is_bool() ? (value.as_bool() ? "true" : "false") : text) != bad.end()) {
      return make_error(ErrorCode::kUnsupported, fmt::format("{}={} is not available: {}", name, text, spec->reason),
                        name);
    }
    result.values_[name] = std::move(value);
    result.given_.emplace(name, spec);
    result.order_.push_back(name);
  }
  std::sort(result.order_.begin(), result.order_.end());
  std::sort(result.unknown_.begin(), result.unknown_.end());
  return result;
}

const json::Value& Environment::get(std::string_view name) const {
  const auto found = values_.find(std::string(name));
  TERN_CHECK_MSG(found != values_.end(), std::string(name));
  return found->second;
}

void Environment::set(std::string_view name, json::Value value) {
  const auto found = values_.find(std::string(name));
  TERN_CHECK_MSG(found != values_.end(), std::string(name));
  found->second = std::move(value);
}

std::string Environment::text(std::string_view name) const {
  const json::Value& value = get(name);
  return value.is_string() ? std::string(value.as_string()) : std::string();
}

std::vector<std::string> Environment::texts(std::string_view name) const {
  std::vector<std::string> result;
  if (const json::Array* items = get(name).if_array()) {
    for (const json::Value& item : *items) result.emplace_back(item.as_string());
  }
  return result;
}

}  // namespace tern::app
