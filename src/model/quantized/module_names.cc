#include "model/quantized/module_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace tern::model {
namespace {

constexpr size_t kLongestPattern = 512, kMostRepetitions = 8;

// A pattern of few repetitions, none of a part in parentheses: matching a name cannot take exponential time.
bool quick(std::string_view pattern) {
  if (pattern.size() > kLongestPattern) return false;
  size_t repetitions = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '*' && c != '+' && c != '{') continue;
    if (i > 0 && pattern[i - 1] == '\\') continue;
    if (i > 0 && pattern[i - 1] == ')') return false;
    ++repetitions;
  }
  return repetitions <= kMostRepetitions;
}

}  // namespace

Status ModuleNames::add(const std::string& entry) {
  if (entry == "Linear") {
    every_ = true;
    return {};
  }
  if (!entry.starts_with("re:")) {
    names_.insert(entry);
    return {};
  }
  const std::string pattern = entry.substr(3);
  if (!quick(pattern))
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("the pattern {} is too long or repeats a part in parentheses", entry.substr(0, 80)));
  try {
    patterns_.emplace_back(pattern);
  } catch (const std::regex_error&) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is no pattern", entry));
  }
  return {};
}

bool ModuleNames::contains(std::string_view module) const {
  return every_ || names_.contains(module) || std::ranges::any_of(patterns_, [&](const std::regex& p) {
           return std::regex_search(module.begin(), module.end(), p, std::regex_constants::match_continuous);
         });
}

}  // namespace tern::model
