#include "image/positions.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace tern::image {

Positions make_positions(int32_t tokens, std::span<const PositionSpan> spans, AdvanceRule rule) {
  TERN_CHECK(tokens >= 0);
  Positions result;
  const auto n = static_cast<size_t>(tokens);
  result.values.resize(3 * n);
  int32_t* axis[3] = {result.values.data(), result.values.data() + n, result.values.data() + 2 * n};
  int32_t next = 0, at = 0;  // the next position, and the token that gets it
  const auto text_until = [&](int32_t end) {
    for (; at < end; at++, next++) axis[0][at] = axis[1][at] = axis[2][at] = next;
  };
  for (const PositionSpan& span : spans) {
    const int64_t cells = int64_t{span.t} * span.h * span.w;
    TERN_CHECK(span.begin >= at && span.t > 0 && span.h > 0 && span.w > 0 && cells <= tokens - span.begin);
    text_until(span.begin);
    int32_t last = 0;  // the largest distance from `next`
    for (int32_t t = 0; t < span.t; t++) {
      const auto step = static_cast<int32_t>(t * span.t_step);
      last = std::max(last, step);
      for (int32_t y = 0; y < span.h; y++) {
        for (int32_t x = 0; x < span.w; x++, at++) {
          axis[0][at] = next + step;
          axis[1][at] = next + y;
          axis[2][at] = next + x;
        }
      }
    }
    const int32_t hw = std::max(span.h, span.w);
    next += rule == AdvanceRule::kMaxAll ? std::max(last + 1, hw) : hw;
  }
  text_until(tokens);
  result.delta = next - tokens;
  return result;
}

}  // namespace tern::image
