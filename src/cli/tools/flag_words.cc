#include "cli/tools/flag_words.h"

#include <fmt/format.h>

namespace tern::cli {
namespace {

std::string status_of(app::Support support, std::string_view refused, std::string_view reason, std::string_view mark) {
  std::string out(app::support_name(support));
  if (!refused.empty()) out += fmt::format("; refused: {0}{1}{0}", mark, refused);
  if (!reason.empty()) out += fmt::format(": {}", reason);
  return out;
}

}  // namespace

std::string_view type_word(app::ValueType type, std::string_view choices) {
  switch (type) {
    case app::ValueType::kInt:
      return "N";
    case app::ValueType::kFloat:
      return "X";
    case app::ValueType::kBool:
      return "";
    case app::ValueType::kEnum:
      return choices;
    case app::ValueType::kJson:
      return "JSON";
    case app::ValueType::kStringOrJson:
      return "TEXT|JSON";
    case app::ValueType::kList:
      return "A,B,...";
    case app::ValueType::kIntList:
      return "N,N,...";
    default:
      return "TEXT";
  }
}

std::string default_text(std::string_view fallback, std::string_view derived) {
  if (!derived.empty()) return std::string(derived);
  return fallback.empty() ? "none" : std::string(fallback);
}

std::string flag_names(const app::FlagSpec& flag) {
  std::string out = fmt::format("--{}", flag.name);
  if (flag.type == app::ValueType::kBool) out += fmt::format(", --no-{}", flag.name);
  for (const std::string_view alias : app::split(flag.aliases, '|'))
    out += fmt::format(", {}{}", alias.size() <= 2 ? "-" : "--", alias);
  return out;
}

std::string status_text(const app::FlagSpec& flag, std::string_view mark) {
  return status_of(flag.support, flag.refused, flag.reason, mark);
}

std::string status_text(const app::VariableSpec& variable, std::string_view mark) {
  return status_of(variable.support, variable.refused, variable.reason, mark);
}

}  // namespace tern::cli
