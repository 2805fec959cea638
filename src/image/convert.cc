#include <cstring>

#include "image/image.h"

namespace tern::image {
namespace {

// Rounded a * b / 255 as Pillow computes it.
inline int mul_div_255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

inline void put_gray(uint8_t* out, uint8_t v) { out[0] = out[1] = out[2] = v; }

void convert_row(const Image& image, const uint8_t* in, uint8_t* out, int width) {
  switch (image.mode()) {
    case Mode::k1:
    case Mode::kL:
      for (int x = 0; x < width; ++x) put_gray(out + 3 * x, in[x]);
      return;
    case Mode::kLA:
      for (int x = 0; x < width; ++x) put_gray(out + 3 * x, in[2 * x]);
      return;
    case Mode::kP:
      for (int x = 0; x < width; ++x) std::memcpy(out + 3 * x, image.palette.data() + 3 * in[x], 3);
      return;
    case Mode::kRGB:
      std::memcpy(out, in, 3 * static_cast<size_t>(width));
      return;
    case Mode::kRGBA:
      for (int x = 0; x < width; ++x) std::memcpy(out + 3 * x, in + 4 * x, 3);
      return;
    case Mode::kCMYK:
      for (int x = 0; x < width; ++x) {
        const int light = 255 - in[4 * x + 3];
        for (int c = 0; c < 3; ++c) out[3 * x + c] = static_cast<uint8_t>(light - mul_div_255(in[4 * x + c], light));
      }
      return;
    case Mode::kI16:  // not scaled: 16-bit values above 255 are white
      for (int x = 0; x < width; ++x) put_gray(out + 3 * x, in[2 * x + 1] == 0 ? in[2 * x] : 255);
      return;
  }
}

}  // namespace

Expected<Image> convert_rgb(Image image) {
  if (image.mode() == Mode::kRGB) return image;
  TERN_ASSIGN_OR_RETURN(Image rgb, Image::make(Mode::kRGB, image.width(), image.height()));
  for (int y = 0; y < image.height(); ++y) convert_row(image, image.row(y), rgb.row(y), image.width());
  return rgb;
}

}  // namespace tern::image
