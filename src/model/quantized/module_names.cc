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

// Without what stands before the layers' names, which libraries write in different ways.
std::string_view without_root(std::string_view name) {
  for (const std::string_view root : {"model.language_model.", "language_model.model.", "model.", "ernie."})
    if (name.starts_with(root)) return name.substr(root.size());
  return name;
}

}  // namespace

Status ModuleNames::add(const std::string& entry) {
  if (entry == "Linear") {
    every_ = true;
    return {};
  }
  if (!entry.starts_with("re:")) {
    const std::string_view name = without_root(entry);
    names_.emplace(parts_ && name.ends_with('.') ? name.substr(0, name.size() - 1) : name);
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
  if (every_ || names_.contains(without_root(module))) return true;
  if (parts_) {
    const std::string words = fmt::format(".{}.", module);
    for (const std::string& name : names_)
      if (words.find(fmt::format(".{}.", name)) != std::string::npos) return true;
  }
  return std::ranges::any_of(patterns_, [&](const std::regex& p) {
    return std::regex_search(module.begin(), module.end(), p, std::regex_constants::match_continuous);
  });
}

bool ModuleNames::may_contain(std::string_view module) const {
  return contains(module) || (parts_ && std::ranges::any_of(names_, [&](const std::string& name) {
                                return module.find(name) != std::string_view::npos;
                              }));
}

}  // namespace tern::model
