// The size to which each model resizes a picture. Rounding is Python's: to nearest, ties to even; floors and square
// roots are in double precision, computed in the same order as in the Python originals (fastdeploy.md 4.5,
// models-ernie-paddleocr.md 5.6, 6.1, models-other.md 8.5).
#pragma once

#include <cstdint>

#include "base/error.h"

namespace tern::image {

enum class ResizeRule : uint8_t {
  // Sides whose ratio is above 200 are resized to that ratio (nothing is cut off); a result outside the pixel limits is
  // an error.
  kErnieVl,
  kPaddleOcrVl,  // sides below the factor are first scaled up to it; a ratio above 200 is an error
  kQwenVl,       // a ratio above 200 is an error
};

struct ResizeLimits {
  int64_t factor = 28;  // side of the square that becomes one token, in pixels: patch size x merge size
  int64_t min_pixels = 4 * 28 * 28;
  int64_t max_pixels = 6177 * 28 * 28;
  // Shrinking to max_pixels makes no side smaller than the factor (newer Hugging Face processors).
  bool keep_factor = false;
};

struct Size {
  int64_t width = 0, height = 0;
  friend bool operator==(const Size&, const Size&) = default;
};

// Sides of the result are multiples of the factor. Errors (kInvalidArgument, fixed texts): the ratio of the sides is
// above 200, or no size keeps the limits; sides or a factor outside 1 to 2^30, limits below 1.
Expected<Size> smart_resize(ResizeRule rule, int64_t width, int64_t height, const ResizeLimits& limits);

}  // namespace tern::image
