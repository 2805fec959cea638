#include "app/flags/flags.h"

#include <algorithm>

#include "base/nearest_name.h"

namespace tern::app {

std::string_view group_title(FlagGroup group) {
  switch (group) {
    case FlagGroup::kServer:
      return "API server";
    case FlagGroup::kModel:
      return "Model";
    case FlagGroup::kCapacity:
      return "Parallelism and capacity";
    case FlagGroup::kLoading:
      return "Loading";
    case FlagGroup::kCache:
      return "Cache";
    case FlagGroup::kPerformance:
      return "Performance";
    case FlagGroup::kDisaggregation:
      return "Disaggregation";
    case FlagGroup::kScheduler:
      return "Scheduler";
    case FlagGroup::kTern:
      return "Tern";
    case FlagGroup::kMedia:
      return "Pictures and videos";
    case FlagGroup::kLimits:
      return "Limits of the HTTP server";
  }
  return "";
}

std::string_view support_name(Support support) {
  switch (support) {
    case Support::kActs:
      return "acts";
    case Support::kHarmless:
      return "harmless";
    case Support::kInert:
      return "inert";
    case Support::kRefused:
      return "refused";
  }
  return "";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

std::string with_underscores(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

const std::vector<FlagSpec>& flag_table() {
  static const std::vector<FlagSpec> table = [] {
    std::vector<FlagSpec> all;
    for (const auto part :
         {server_flags(), model_flags(), capacity_flags(), cluster_flags(), tern_flags(), media_flags()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return table;
}

const FlagSpec* find_flag(std::string_view name) {
  const std::string wanted = with_underscores(name);
  for (const FlagSpec& flag : flag_table()) {
    if (with_underscores(flag.name) == wanted) return &flag;
    for (const std::string_view alias : split(flag.aliases, '|')) {
      if (with_underscores(alias) == wanted) return &flag;
    }
  }
  return nullptr;
}

std::string nearest_flag(std::string_view name) {
  std::vector<std::string_view> names;
  for (const FlagSpec& flag : flag_table()) names.push_back(flag.name);
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return std::string(nearest_name(dashed, names, dashed.size() / 2));
}

}  // namespace tern::app
