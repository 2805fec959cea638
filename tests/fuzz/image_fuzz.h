// Shared by the picture fuzz targets: decode with small limits, then look at every pixel as RGB.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "image/codecs/decoders.h"

namespace tern::image {

inline DecodeLimits fuzz_limits() {
  DecodeLimits limits;
  limits.pixels = uint64_t{1} << 18;
  limits.scan_pixels = uint64_t{1} << 22;
  limits.frames = 20;
  return limits;
}

// Reads all that a decoder promised, and an error's promise: no empty text.
inline void look_at(Expected<Image> image) {
  if (!image.ok()) {
    if (image.error().message.empty()) std::abort();
    return;
  }
  const auto rgb = convert_rgb(std::move(*image));
  if (!rgb.ok()) return;
  uint32_t sum = 0;
  for (size_t i = 0; i < rgb->size_bytes(); ++i) sum += rgb->data()[i];
  if (sum > rgb->size_bytes() * 255) std::abort();
}

}  // namespace tern::image
