// What a picture's header says, before anything is decoded: for budgets and limits that are checked beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "image/codecs/decode.h"

namespace tern::image {

struct PictureFacts {
  Format format = Format::kUnknown;
  int width = 0, height = 0;
  // Memory that decode_image and convert_rgb take together at their peak, as an upper estimate.
  size_t working_bytes = 0;
  bool alpha = false;  // decode_image may give a picture with an alpha channel
};

// Reads the header only; the decoder may still refuse the file, or (a damaged file) find another size in it, which the
// caller compares. Errors as decode_image.
Expected<PictureFacts> probe_image(std::span<const uint8_t> file, const DecodeLimits& limits);

}  // namespace tern::image
