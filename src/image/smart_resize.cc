#include "image/smart_resize.h"

#include <algorithm>
#include <cmath>

namespace tern::image {
namespace {

constexpr int64_t kMaxRatio = 200;

// Python's round(n / d): nearbyint rounds half to even in the default mode.
int64_t round_ratio(int64_t n, int64_t d) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(n) / static_cast<double>(d)));
}

int64_t floor_to(double v, int64_t factor) {
  return static_cast<int64_t>(std::floor(v / static_cast<double>(factor))) * factor;
}
int64_t ceil_to(double v, int64_t factor) {
  return static_cast<int64_t>(std::ceil(v / static_cast<double>(factor))) * factor;
}

bool ratio_exceeds_max(const Size& s) {
  return static_cast<double>(std::max(s.width, s.height)) / static_cast<double>(std::min(s.width, s.height)) >
         static_cast<double>(kMaxRatio);
}

Error error_ratio() {
  return make_error(ErrorCode::kInvalidArgument, "the picture's longer side is more than 200 times its shorter one");
}
Error error_limits() {
  return make_error(ErrorCode::kInvalidArgument, "the picture cannot be resized within the pixel limits");
}

Size clip_ratio(const Size& s, int64_t factor) {
  const int64_t short_side = std::max(factor, round_ratio(std::min(s.width, s.height), factor) * factor);
  const int64_t long_side = floor_to(static_cast<double>(short_side * kMaxRatio), factor);
  return s.height > s.width ? Size{short_side, long_side} : Size{long_side, short_side};
}

Size grow_to_factor(Size s, int64_t factor) {
  if (s.height < factor) {
    s.width = round_ratio(s.width * factor, s.height);
    s.height = factor;
  }
  if (s.width < factor) {
    s.height = round_ratio(s.height * factor, s.width);
    s.width = factor;
  }
  return s;
}

Size fit(const Size& s, const ResizeLimits& limits) {
  const int64_t f = limits.factor;
  const double w = static_cast<double>(s.width), h = static_cast<double>(s.height);
  Size fitted{std::max(f, round_ratio(s.width, f) * f), std::max(f, round_ratio(s.height, f) * f)};
  const int64_t pixels = fitted.width * fitted.height;
  if (pixels > limits.max_pixels) {
    const double shrink = std::sqrt(h * w / static_cast<double>(limits.max_pixels));
    const int64_t least = limits.keep_factor ? f : 0;
    fitted = {std::max(least, floor_to(w / shrink, f)), std::max(least, floor_to(h / shrink, f))};
  } else if (pixels < limits.min_pixels) {
    const double grow = std::sqrt(static_cast<double>(limits.min_pixels) / (h * w));
    fitted = {ceil_to(w * grow, f), ceil_to(h * grow, f)};
  }
  return fitted;
}

}  // namespace

Expected<Size> smart_resize(ResizeRule rule, int64_t width, int64_t height, const ResizeLimits& limits) {
  constexpr int64_t kLargest = int64_t{1} << 30;
  const auto outside = [&](int64_t v) { return v < 1 || v > kLargest; };
  if (outside(width) || outside(height) || outside(limits.factor) || limits.min_pixels < 1 || limits.max_pixels < 1) {
    return make_error(ErrorCode::kInvalidArgument, "sides and factor must be from 1 to 2^30, pixel limits at least 1");
  }
  Size size{width, height};
  if (rule == ResizeRule::kPaddleOcrVl) size = grow_to_factor(size, limits.factor);
  if (ratio_exceeds_max(size)) {
    if (rule != ResizeRule::kErnieVl) return error_ratio();
    size = clip_ratio(size, limits.factor);
  }
  const Size fitted = fit(size, limits);
  if (fitted.width < limits.factor || fitted.height < limits.factor) return error_limits();
  const int64_t pixels = fitted.width * fitted.height;
  if (rule == ResizeRule::kErnieVl && (pixels < limits.min_pixels || pixels > limits.max_pixels)) return error_limits();
  return fitted;
}

}  // namespace tern::image
