#include "media/image.h"

#include <cstring>

#include "base/checked.h"

namespace tern::media {

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::k1:
      return "1";
    case Mode::kL:
      return "L";
    case Mode::kLA:
      return "LA";
    case Mode::kP:
      return "P";
    case Mode::kRGB:
      return "RGB";
    case Mode::kRGBA:
      return "RGBA";
    case Mode::kCMYK:
      return "CMYK";
    case Mode::kI16:
      return "I;16";
  }
  return "?";
}

int bytes_per_pixel(Mode mode) {
  switch (mode) {
    case Mode::k1:
    case Mode::kL:
    case Mode::kP:
      return 1;
    case Mode::kLA:
    case Mode::kI16:
      return 2;
    case Mode::kRGB:
      return 3;
    case Mode::kRGBA:
    case Mode::kCMYK:
      return 4;
  }
  return 1;
}

Expected<Image> Image::make(Mode mode, int64_t width, int64_t height) {
  const auto w = checked_cast<int32_t>(width), h = checked_cast<int32_t>(height);
  if (!w || !h || *w < 1 || *h < 1) {
    return make_error(ErrorCode::kInvalidArgument, "a picture's sides must be at least one pixel");
  }
  const auto pixels = checked_mul<uint64_t>(*w, *h);
  const auto bytes = checked_mul<uint64_t>(*pixels, bytes_per_pixel(mode));
  Image image;
  image.mode_ = mode;
  image.width_ = *w;
  image.height_ = *h;
  if (bytes && *bytes < SIZE_MAX - kPixelTail) {
    image.data_.reset(static_cast<uint8_t*>(std::malloc(*bytes + kPixelTail)));
  }
  if (!image.data_) return make_error(ErrorCode::kResourceExhausted, "not enough memory for the picture");
  std::memset(image.data_.get() + *bytes, 0, kPixelTail);
  return image;
}

Hash128 fingerprint(const Image& image, HashKey key) {
  struct {
    uint64_t width, height, mode;
    Hash128 pixels;
    uint8_t palette[768];
  } record{};
  record.width = image.width();
  record.height = image.height();
  record.mode = static_cast<uint64_t>(image.mode());
  record.pixels = siphash128(key, image.data(), image.size_bytes());
  if (image.mode() == Mode::kP) std::memcpy(record.palette, image.palette.data(), sizeof(record.palette));
  return siphash128(key, &record, sizeof(record));
}

}  // namespace tern::media
