#include "cli/engines_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tern::cli {
namespace {

const model::RankSummary& of_ranks(const model::ModelSummary& summary, int ranks) {
  const auto found = std::find_if(summary.ranks.begin(), summary.ranks.end(),
                                  [&](const model::RankSummary& r) { return r.count == ranks; });
  return found == summary.ranks.end() ? summary.ranks.front() : *found;
}

}  // namespace

json::Object describe_engines(const model::ModelSummary& summary, int engines, int ranks, bool own_weights) {
  const model::RankSummary& each = of_ranks(summary, ranks);
  const auto copies = [&](int count) {
    json::Object out;
    for (const auto& [precision, bytes] : each.weight_bytes) {
      out[precision] = bytes * static_cast<size_t>(each.count) * static_cast<size_t>(count);
    }
    return out;
  };
  return {{"engines", engines},
          {"cards", engines * each.count},
          {"weight_bytes", {{"cpu", copies(own_weights ? engines : 1)}, {"cuda", copies(engines)}}}};
}

std::string engines_line(const model::ModelSummary& summary, int engines, int ranks) {
  const model::RankSummary& each = of_ranks(summary, ranks);
  std::vector<std::string> weights;
  for (const auto& [precision, bytes] : each.weight_bytes) {
    weights.push_back(fmt::format("{:.2f} GB in {}", static_cast<double>(bytes) / 1e9, precision));
  }
  return fmt::format(
      "{}, a cache each; on GPUs {} cards with {} of weights on each; on a CPU all engines read the same weights",
      engines, engines * each.count, fmt::join(weights, " or "));
}

}  // namespace tern::cli
