#include "image/codecs/upright.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tern::image {
namespace {

// Rounded v / 255 as Pillow computes it.
inline uint8_t div_255(int v) {
  const int t = v + 128;
  return static_cast<uint8_t>(((t >> 8) + t) >> 8);
}

// Bytes per pixel, the last of which is alpha; 0 for modes without.
int alpha_pixel(Mode mode) { return mode == Mode::kRGBA ? 4 : mode == Mode::kLA ? 2 : 0; }

// In squares, so that both pictures' rows stay in the cache.
template <int kBytes>
void transpose(const Image& image, bool flip_x, bool flip_y, Image* turned) {
  constexpr int kSquare = 32;
  const int w = image.width(), h = image.height();
  for (int top = 0; top < turned->height(); top += kSquare) {
    const int bottom = std::min(top + kSquare, turned->height());
    for (int left = 0; left < turned->width(); left += kSquare) {
      const int right = std::min(left + kSquare, turned->width());
      for (int y = top; y < bottom; ++y) {
        const size_t from_x = static_cast<size_t>(flip_x ? w - 1 - y : y) * kBytes;
        uint8_t* out = turned->row(y) + static_cast<size_t>(left) * kBytes;
        for (int x = left; x < right; ++x, out += kBytes) {
          std::memcpy(out, image.row(flip_y ? h - 1 - x : x) + from_x, kBytes);
        }
      }
    }
  }
}

template <int kBytes>
void mirror(const Image& image, bool flip_x, bool flip_y, Image* turned) {
  const int w = image.width(), h = image.height();
  for (int y = 0; y < h; ++y) {
    const uint8_t* in = image.row(flip_y ? h - 1 - y : y);
    uint8_t* out = turned->row(y);
    if (!flip_x) {
      std::memcpy(out, in, image.row_bytes());
      continue;
    }
    for (int x = 0; x < w; ++x) std::memcpy(out + x * kBytes, in + static_cast<size_t>(w - 1 - x) * kBytes, kBytes);
  }
}

template <int kBytes>
void turn(const Image& image, int orientation, Image* turned) {
  // Whether the wanted pixel's source is counted from the right, and from below.
  static constexpr bool kFlipX[] = {false, false, true, true, false, false, false, true, true};
  static constexpr bool kFlipY[] = {false, false, false, true, true, false, true, true, false};
  if (orientation >= 5) {
    transpose<kBytes>(image, kFlipX[orientation], kFlipY[orientation], turned);
  } else {
    mirror<kBytes>(image, kFlipX[orientation], kFlipY[orientation], turned);
  }
}

}  // namespace

Expected<Image> apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool swapped = orientation >= 5;
  TERN_ASSIGN_OR_RETURN(Image turned, Image::make(image.mode(), swapped ? image.height() : image.width(),
                                                  swapped ? image.width() : image.height()));
  turned.palette = image.palette;
  switch (bytes_per_pixel(image.mode())) {
    case 1:
      turn<1>(image, orientation, &turned);
      break;
    case 2:
      turn<2>(image, orientation, &turned);
      break;
    case 3:
      turn<3>(image, orientation, &turned);
      break;
    default:
      turn<4>(image, orientation, &turned);
  }
  return turned;
}

bool is_transparent(const Image& image) {
  const auto step = static_cast<size_t>(alpha_pixel(image.mode()));
  if (step == 0) return false;
  for (int y = 0; y < image.height(); ++y) {
    const uint8_t* row = image.row(y);
    uint8_t least = 255;
    for (size_t x = step - 1; x < image.row_bytes(); x += step) least = std::min(least, row[x]);
    if (least < 255) return true;
  }
  return false;
}

Expected<Image> lay_on_white(const Image& image) {
  TERN_ASSIGN_OR_RETURN(Image rgb, Image::make(Mode::kRGB, image.width(), image.height()));
  const int step = alpha_pixel(image.mode());
  if (step == 0) return make_error(ErrorCode::kInvalidArgument, "the picture has no alpha channel");
  for (int y = 0; y < image.height(); ++y) {
    const uint8_t* in = image.row(y);
    uint8_t* out = rgb.row(y);
    for (int x = 0; x < image.width(); ++x, in += step, out += 3) {
      const int alpha = in[step - 1];
      for (int c = 0; c < 3; ++c) out[c] = div_255(255 * (255 - alpha) + in[step == 4 ? c : 0] * alpha);
    }
  }
  return rgb;
}

Expected<Image> compose_upright(Image image, Format format, int orientation) {
  if (!is_transparent(image)) return apply_orientation(std::move(image), orientation);
  TERN_ASSIGN_OR_RETURN(image, lay_on_white(image));
  return format == Format::kTiff ? apply_orientation(std::move(image), orientation) : std::move(image);
}

}  // namespace tern::image
