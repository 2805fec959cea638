// Decoding of still pictures from memory, with limits that are checked before anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/task.h"
#include "image/image.h"

namespace tern::image {

struct DecodeLimits {
  uint64_t bytes = uint64_t{64} << 20;  // of the file
  uint64_t pixels = 89478485;           // width x height; where Pillow starts to warn
  uint64_t side = 65535;                // longer side in pixels
  uint64_t frames = 1000;               // of an animated WebP (only the first frame is decoded)
  // Passes over a progressive JPEG: at most `scans`, and scans x pixels at most scan_pixels.
  uint64_t scans = 256;
  uint64_t scan_pixels = uint64_t{1} << 30;
};

enum class Format : uint8_t { kUnknown, kJpeg, kPng, kGif, kWebp, kBmp, kTiff };

// By content; names and declared types are never looked at.
Format sniff_format(std::span<const uint8_t> file);

// Told of a picture while it is decoded.
class RowWatch {
 public:
  virtual ~RowWatch() = default;
  // The picture's rows will come, in mode RGB (JPEGs of three components; of others nothing is told). It stays where it
  // is.
  virtual void begin(const Image& image) = 0;
  // Another thread that runs the task soon, to decode lower rows meanwhile; that takes most of a decoding twice. False:
  // there is none, and the task is not run.
  virtual bool share(Task) { return false; }
  // Rows [begin, end) are there and stay as they are. Two threads tell of theirs, each from the top: one of the upper
  // part, one of the rest. In the end all rows have been told, unless the file is damaged.
  virtual void rows(int begin, int end) = 0;
  // What was told does not count, and nothing more is told. When it returns the picture is no longer read.
  virtual void forget() = 0;
};

// The first frame of the picture, in the mode in which Pillow opens it. JPEGs are decoded with the exact integer DCT
// and smooth chroma upsampling; no colour profile and no orientation is applied. Safe for any bytes. Errors have fixed
// texts, without anything from the file or the libraries:
//   kTooLarge     a limit is exceeded
//   kUnsupported  no known format, or a variant of one that is not decoded
//   kCorrupt      damaged, or cut short
//   kResourceExhausted  no memory
Expected<Image> decode_image(std::span<const uint8_t> file, const DecodeLimits& limits);
// The same into `image`. watch: may be null. After an error the picture means nothing, whatever was told of it.
Status decode_image(std::span<const uint8_t> file, const DecodeLimits& limits, Image* image, RowWatch* watch);

}  // namespace tern::image
