#include "vision/position_table.h"

#include <algorithm>

namespace tern::vision {
namespace {

struct Place {
  int32_t low, high;
  float part;  // of `high`
};

// In float32, in the order of the original's arithmetic.
Place place(int side, int n, int i) {
  const float scale = static_cast<float>(side) / static_cast<float>(n);
  const float at = std::max(scale * (static_cast<float>(i) + 0.5f) - 0.5f, 0.0f);
  const int32_t low = std::min(static_cast<int32_t>(at), side - 1);
  return {low, std::min(low + 1, side - 1), at - static_cast<float>(low)};
}

}  // namespace

Neighbours resampled(int side, int h, int w, int y, int x) {
  const Place v = place(side, h, y), u = place(side, w, x);
  const float top = 1.0f - v.part, left = 1.0f - u.part;
  return {{v.low * side + u.low, v.low * side + u.high, v.high * side + u.low, v.high * side + u.high},
          {top * left, top * u.part, v.part * left, v.part * u.part}};
}

}  // namespace tern::vision
