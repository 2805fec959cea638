// The size to which each model resizes a picture. Rounding is Python's: to nearest, ties to even; floors and square
// roots are in double precision, in the order of the originals (fastdeploy.md 4.5, models-ernie-paddleocr.md 5.6, 6.1,
// models-other.md 8.5).
#pragma once

#include <cstdint>

#include "base/error.h"

namespace tern::image {

enum class ResizeRule : uint8_t {
  kErnieVl,      // a picture longer than 200 : 1 is clipped to that; a result outside the pixel limits is an error
  kPaddleOcrVl,  // sides below the factor are first scaled up to it; longer than 200 : 1 is an error
  kQwenVl,       // longer than 200 : 1 is an error
};

struct ResizeLimits {
  int64_t factor = 28;  // patch x merge
  int64_t min_pixels = 4 * 28 * 28;
  int64_t max_pixels = 6177 * 28 * 28;
  // Never less than one factor where a side is rounded down for max_pixels (newer Hugging Face processors).
  bool keep_factor = false;
};

struct Size {
  int64_t width = 0, height = 0;
  friend bool operator==(const Size&, const Size&) = default;
};

// Sides are multiples of the factor. Errors (kInvalidArgument, fixed texts): the picture is too long for its width, or
// no size keeps the limits. Sides below 1 or limits below 1 are kInvalidArgument, too.
Expected<Size> smart_resize(ResizeRule rule, int64_t width, int64_t height, const ResizeLimits& limits);

}  // namespace tern::image
