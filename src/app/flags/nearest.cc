#include "app/flags/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tern::app {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view name, std::span<const std::string_view> candidates) {
  constexpr size_t kLongest = 200;  // a longer name is no misspelling, and the table is quadratic
  if (name.size() > kLongest) return "";
  std::string_view best;
  size_t least = name.size() / 2 + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

}  // namespace tern::app
