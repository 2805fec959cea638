// Private to this room: what a TIFF's first image directory says, checked before libtiff sees the file.
#pragma once

#include "image/codecs/decoders.h"

namespace tern::image {

// How samples become pixels of Image.
enum class TiffSamples : uint8_t {
  kBits,        // 1, 2, 4 bits: gray scaled to 255, or palette indices
  kBytes,       // 8 bits, the first samples of each pixel
  kHighBytes,   // 16 bits, of which the upper 8 are kept
  kWords,       // 16 bits, kept: gray
  kUnmultiply,  // red, green, blue are premultiplied by alpha in the file and divided by it; 8 or 16 bits
};

struct TiffPlan {
  uint64_t width = 0, height = 0;
  Mode mode = Mode::kL;
  TiffSamples samples = TiffSamples::kBytes;
  uint32_t bits = 1;                         // of a sample
  uint32_t per_pixel = 1;                    // samples of a pixel in the file
  bool inverted = false;                     // 0 is white
  bool planes = false;                       // every sample has a plane of its own (PlanarConfiguration 2)
  bool ycbcr = false;                        // JPEG, turned into RGB while it is read
  uint64_t tile_width = 0, tile_height = 0;  // 0: strips
  uint64_t chunk_bytes = 0;                  // of a decoded tile or row
};

// Errors: kTooLarge, kUnsupported (another compression, another kind of samples), kCorrupt.
Expected<TiffPlan> plan_tiff(Bytes file, const DecodeLimits& limits);

}  // namespace tern::image
