#include "image/codecs/probe.h"

#include <webp/decode.h>

#include <algorithm>
#include <cstring>

#include "image/codecs/tiff_plan.h"

namespace tern::image {
namespace {

struct Header {
  uint64_t width = 0, height = 0;
  uint64_t bytes_per_pixel = 0;  // at the peak of decoding, the RGB copy included
  uint64_t beside = 0;           // bytes that do not grow with the pixels
  bool alpha = false;
};

// Walks the segments to the first frame header (SOF0 to SOF15 without DHT, JPG and DAC).
Expected<Header> probe_jpeg(Bytes file) {
  size_t at = 2;
  while (true) {
    while (at < file.size() && file[at] != 0xff) at++;  // as the library does: bytes between segments are skipped
    while (at < file.size() && file[at] == 0xff) at++;
    if (at >= file.size()) return error_truncated();
    const uint8_t marker = file[at++];
    if (marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8)) continue;
    if (marker == 0xd9 || marker == 0xda) return error_damaged();
    if (file.size() - at < 2) return error_truncated();
    const size_t length = read_be16(&file[at]);
    if (length < 2) {  // the library skips nothing then
      at += 2;
      continue;
    }
    if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc) {
      if (length < 8 || file.size() - at < 8) return error_truncated();
      const uint64_t channels = file[at + 7];
      // Passes over the whole picture keep its coefficients, two bytes each.
      const bool kept = marker != 0xc0 && marker != 0xc1;
      return Header{read_be16(&file[at + 5]), read_be16(&file[at + 3]), channels + 3 + (kept ? 2 * channels : 0)};
    }
    if (file.size() - at < length) return error_truncated();
    at += length;
  }
}

Expected<Header> probe_png(Bytes file) {
  if (file.size() < 33) return error_truncated();
  const bool alpha = (file[25] & 4) != 0;  // of the colour type
  return Header{read_be32(&file[16]), read_be32(&file[20]), 4 + 3, 0, alpha};
}

// The screen, and the first frame's place on it.
Expected<Header> probe_gif(Bytes file) {
  if (file.size() < 13) return error_truncated();
  const auto table = [](uint8_t flags) { return (flags & 0x80) != 0 ? size_t{3} << ((flags & 7) + 1) : size_t{0}; };
  size_t at = 13 + table(file[10]);
  while (at < file.size() && file[at] == 0x21) {
    at += 2;
    while (at < file.size() && file[at] != 0) at += 1 + size_t{file[at]};
    at++;
  }
  if (at >= file.size() || file.size() - at < 10) return error_truncated();
  if (file[at] != 0x2c) return error_damaged();
  const uint64_t right = read_le16(&file[at + 1]) + read_le16(&file[at + 5]),
                 bottom = read_le16(&file[at + 3]) + read_le16(&file[at + 7]);
  return Header{std::max<uint64_t>(read_le16(&file[6]), right), std::max<uint64_t>(read_le16(&file[8]), bottom), 1 + 3};
}

Expected<Header> probe_webp(Bytes file) {
  if (file.size() < 20) return error_truncated();
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(file.data(), file.size(), &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) return error_truncated();
  if (status != VP8_STATUS_OK) return error_damaged();
  // Lossless pictures are held as 32-bit pixels beside the result; animations have two canvases.
  return Header{static_cast<uint64_t>(features.width), static_cast<uint64_t>(features.height),
                uint64_t{4 + 3} + (features.has_animation ? 8 : 4), 0, features.has_alpha != 0};
}

Expected<Header> probe_bmp(Bytes file) {
  if (file.size() < 26) return error_truncated();
  const uint8_t* p = &file[14];
  if (read_le32(p) == 12) return Header{read_le16(p + 4), read_le16(p + 6), 4 + 3};
  const uint32_t height = read_le32(p + 8);
  const bool alpha = file.size() >= 30 && read_le16(p + 14) == 32;
  return Header{read_le32(p + 4), p[11] == 0xff ? (uint64_t{1} << 32) - height : height, 4 + 3, 0, alpha};
}

// Rows or a tile are held beside the result.
Expected<Header> probe_tiff(Bytes file, const DecodeLimits& limits) {
  TERN_ASSIGN_OR_RETURN(const TiffPlan plan, plan_tiff(file, limits));
  Header header{plan.width, plan.height, static_cast<uint64_t>(bytes_per_pixel(plan.mode)) + 3};
  header.beside = 8 * plan.chunk_bytes;
  header.alpha = plan.mode == Mode::kRGBA || plan.mode == Mode::kLA;
  return header;
}

Expected<Header> probe(Format format, Bytes file, const DecodeLimits& limits) {
  switch (format) {
    case Format::kJpeg:
      return probe_jpeg(file);
    case Format::kPng:
      return probe_png(file);
    case Format::kGif:
      return probe_gif(file);
    case Format::kWebp:
      return probe_webp(file);
    case Format::kBmp:
      return probe_bmp(file);
    case Format::kTiff:
      return probe_tiff(file, limits);
    case Format::kUnknown:
      break;
  }
  return error_format(file);
}

}  // namespace

Expected<PictureFacts> probe_image(Bytes file, const DecodeLimits& limits) {
  if (file.size() > limits.bytes) return error_file_bytes();
  const Format format = sniff_format(file);
  TERN_ASSIGN_OR_RETURN(const Header header, probe(format, file, limits));
  TERN_RETURN_IF_ERROR(check_size(header.width, header.height, limits));
  PictureFacts facts;
  facts.format = format;
  facts.width = static_cast<int>(header.width);
  facts.height = static_cast<int>(header.height);
  facts.working_bytes = header.width * header.height * header.bytes_per_pixel + header.beside + (size_t{1} << 20);
  facts.alpha = header.alpha;
  return facts;
}

}  // namespace tern::image
