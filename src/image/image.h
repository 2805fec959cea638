// A decoded picture: pixels in one of Pillow's modes, rows without gaps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory/pages.h"
#include "image/kernels.h"

namespace tern::image {

// Names and meaning are Pillow's. Samples are uint8 except I;16, which is little-endian uint16.
enum class Mode : uint8_t {
  k1,     // 1 byte, 0 or 255
  kL,     // gray
  kLA,    // gray, alpha
  kP,     // palette index
  kRGB,   // red, green, blue
  kRGBA,  // not premultiplied
  kCMYK,  // 255 = full ink (Adobe's inverted JPEGs are turned over while reading, as Pillow does)
  kI16,   // 16-bit gray
};

const char* mode_name(Mode mode);  // "1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"
int bytes_per_pixel(Mode mode);

// Bytes after the last pixel that may be read or written by vector code; their content means nothing.
inline constexpr size_t kPixelTail = 64;

class Image {
 public:
  Image() = default;
  // Pixels are left uninitialised. Errors: kInvalidArgument for a side below 1, kResourceExhausted without memory.
  static Expected<Image> make(Mode mode, int64_t width, int64_t height);

  Mode mode() const { return mode_; }
  int width() const { return width_; }
  int height() const { return height_; }
  size_t row_bytes() const { return static_cast<size_t>(width_) * bytes_per_pixel(mode_); }
  size_t size_bytes() const { return row_bytes() * height_; }
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  uint8_t* row(int y) { return data_.get() + row_bytes() * y; }
  const uint8_t* row(int y) const { return data_.get() + row_bytes() * y; }

  // Mode P: 256 entries of R, G, B; those that the file does not define are black.
  std::array<uint8_t, 768> palette{};

 private:
  struct Free {
    size_t bytes;
    void operator()(uint8_t* p) const { give_pages(p, bytes); }
  };
  std::unique_ptr<uint8_t[], Free> data_{nullptr, Free{0}};
  Mode mode_ = Mode::kL;
  int width_ = 0, height_ = 0;
};

// Pillow's convert("RGB") (the rule of each mode stands in RULES.md). An RGB picture is passed through.
Expected<Image> convert_rgb(Image image);

// The orientation, 1 to 8, of a JPEG, PNG, WebP or TIFF file: its Exif data's tag, or, where they have none, that of
// its XMP text; 1 when there is none or it is damaged.
int exif_orientation(const uint8_t* data, size_t size);
// Turns or mirrors the picture so that it stands upright (Pillow's ImageOps.exif_transpose). 1 passes it through.
Expected<Image> apply_orientation(Image image, int orientation);

// A fingerprint of rows that come one after the other, from the top.
class Fingerprinter {
 public:
  Fingerprinter(HashKey key, Isa isa);
  // Rows [0, rows) of the picture are there; those before have been told of already.
  void add(const Image& image, int rows);
  // After the last row.
  Hash128 finish(const Image& image) const;

 private:
  HashKey key_;
  Isa isa_;
  HashLanes lanes_;
  size_t done_ = 0;  // bytes
};

// Keyed hash of a file's bytes, in the same way: several times as fast as one SipHash over all of them.
Hash128 hash_file(std::span<const uint8_t> file, HashKey key, Isa isa = active_isa());

// Keyed hash of size, mode, palette and pixels: equal pictures are equal whatever file they came from,
// on every instruction set.
Hash128 fingerprint(const Image& image, HashKey key, Isa isa = active_isa());

}  // namespace tern::image
