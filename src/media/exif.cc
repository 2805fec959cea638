#include <cstring>
#include <utility>

#include "media/decoders.h"

namespace tern::media {
namespace {

// The orientation in a TIFF structure's first directory (tag 0x112, one SHORT), or 1.
int tiff_orientation(Bytes tiff) {
  if (tiff.size() < 8) return 1;
  const bool little = tiff[0] == 'I' && tiff[1] == 'I';
  if (!little && !(tiff[0] == 'M' && tiff[1] == 'M')) return 1;
  const auto u16 = [&](size_t at) { return little ? read_le16(&tiff[at]) : read_be16(&tiff[at]); };
  const auto u32 = [&](size_t at) { return little ? read_le32(&tiff[at]) : read_be32(&tiff[at]); };
  if (u16(2) != 42) return 1;
  const size_t directory = u32(4);
  if (directory > tiff.size() - 2) return 1;
  const size_t count = u16(directory);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = directory + 2 + 12 * i;
    if (at + 12 > tiff.size()) return 1;
    if (u16(at) != 0x112) continue;
    const uint32_t value = u16(at + 8);
    return u16(at + 2) == 3 && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Bytes strip_exif_name(Bytes block) {
  return block.size() >= 6 && std::memcmp(block.data(), "Exif\0\0", 6) == 0 ? block.subspan(6) : block;
}

int jpeg_orientation(Bytes file) {
  for (size_t at = 2; at + 4 <= file.size() && file[at] == 0xff;) {
    const uint8_t marker = file[at + 1];
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) return 1;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {  // markers without a length
      at += 2;
      continue;
    }
    const size_t length = read_be16(&file[at + 2]);
    if (length < 2 || length > file.size() - at - 2) return 1;
    const Bytes block = file.subspan(at + 4, length - 2);
    if (marker == 0xe1 && block.size() > 6 && std::memcmp(block.data(), "Exif\0\0", 6) == 0) {
      return tiff_orientation(block.subspan(6));
    }
    at += 2 + length;
  }
  return 1;
}

int png_orientation(Bytes file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length = read_be32(&file[at]);
    if (length > file.size() - at - 12) return 1;
    if (std::memcmp(&file[at + 4], "eXIf", 4) == 0) return tiff_orientation(file.subspan(at + 8, length));
    at += 12 + length;
  }
  return 1;
}

int webp_orientation(Bytes file) {
  for (size_t at = 12; at + 8 <= file.size();) {
    const size_t length = read_le32(&file[at + 4]);
    if (length > file.size() - at - 8) return 1;
    if (std::memcmp(&file[at], "EXIF", 4) == 0) {
      return tiff_orientation(strip_exif_name(file.subspan(at + 8, length)));
    }
    at += 8 + length + length % 2;
  }
  return 1;
}

}  // namespace

int exif_orientation(const uint8_t* data, size_t size) {
  const Bytes file(data, size);
  switch (sniff_format(file)) {
    case Format::kJpeg:
      return jpeg_orientation(file);
    case Format::kPng:
      return png_orientation(file);
    case Format::kWebp:
      return webp_orientation(file);
    default:
      return 1;
  }
}

Expected<Image> apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const int w = image.width(), h = image.height(), bytes = bytes_per_pixel(image.mode());
  const bool swapped = orientation >= 5;
  TERN_ASSIGN_OR_RETURN(Image turned, Image::make(image.mode(), swapped ? h : w, swapped ? w : h));
  turned.palette = image.palette;
  // Bits of the wanted pixel's source: mirrored in x, mirrored in y.
  static constexpr bool kFlipX[] = {false, false, true, true, false, false, false, true, true};
  static constexpr bool kFlipY[] = {false, false, false, true, true, false, true, true, false};
  for (int y = 0; y < turned.height(); ++y) {
    uint8_t* out = turned.row(y);
    for (int x = 0; x < turned.width(); ++x, out += bytes) {
      int from_x = swapped ? y : x, from_y = swapped ? x : y;
      if (kFlipX[orientation]) from_x = w - 1 - from_x;
      if (kFlipY[orientation]) from_y = h - 1 - from_y;
      std::memcpy(out, image.row(from_y) + static_cast<size_t>(from_x) * bytes, bytes);
    }
  }
  return turned;
}

}  // namespace tern::media
