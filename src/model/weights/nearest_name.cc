#include "model/weights/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace tern::model {
namespace {

constexpr size_t kMaxCandidates = 4000, kMaxLength = 200;

// Levenshtein's distance.
size_t distance(const std::string& a, const std::string& b, std::vector<size_t>& row) {
  row.resize(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t up = row[j + 1];
      row[j + 1] = std::min({up + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = up;
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string wanted = name.substr(0, kMaxLength);
  std::string best;
  size_t best_distance = ~size_t{0};
  std::vector<size_t> row;
  for (size_t i = 0; i < std::min(candidates.size(), kMaxCandidates); ++i) {
    const std::string& c = candidates[i];
    if (c.size() > kMaxLength) continue;
    const size_t at_least = c.size() > wanted.size() ? c.size() - wanted.size() : wanted.size() - c.size();
    if (at_least >= best_distance) continue;
    const size_t d = distance(wanted, c, row);
    if (d < best_distance) best_distance = d, best = c;
  }
  return best;
}

}  // namespace tern::model
