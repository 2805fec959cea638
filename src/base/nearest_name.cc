#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tern {
namespace {

constexpr size_t kMaxCandidates = 4000, kMaxLength = 200;

size_t distance(std::string_view a, std::string_view b, std::vector<size_t>& row) {
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

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates, size_t at_most) {
  if (name.size() > kMaxLength) return {};
  std::string_view best;
  size_t least = at_most == std::numeric_limits<size_t>::max() ? at_most : at_most + 1;
  std::vector<size_t> row;
  for (const std::string_view c : candidates.first(std::min(candidates.size(), kMaxCandidates))) {
    if (c.size() > kMaxLength) continue;
    const size_t at_least = c.size() > name.size() ? c.size() - name.size() : name.size() - c.size();
    if (at_least >= least) continue;
    const size_t d = distance(name, c, row);
    if (d < least) least = d, best = c;
  }
  return best;
}

}  // namespace tern
