#include "media/decode.h"

#include <cstring>

#include "media/decoders.h"

namespace tern::media {

Error error_format() {
  return make_error(ErrorCode::kUnsupported,
                    "the picture is in no supported format (JPEG, PNG, GIF, WebP and BMP are)");
}
Error error_truncated() { return make_error(ErrorCode::kCorrupt, "the picture is cut short"); }
Error error_damaged() { return make_error(ErrorCode::kCorrupt, "the picture's data is damaged"); }
Error error_variant() {
  return make_error(ErrorCode::kUnsupported, "the picture uses a variant of its format that is not supported");
}
Error error_memory() { return make_error(ErrorCode::kResourceExhausted, "not enough memory for the picture"); }
Error error_file_bytes() { return make_error(ErrorCode::kTooLarge, "the picture's file is larger than the limit"); }
Error error_pixels() { return make_error(ErrorCode::kTooLarge, "the picture has more pixels than the limit"); }
Error error_frames() { return make_error(ErrorCode::kTooLarge, "the picture has more frames than the limit"); }
Error error_scans() { return make_error(ErrorCode::kTooLarge, "the picture has more passes than the limit"); }

Status check_size(uint64_t width, uint64_t height, const DecodeLimits& limits) {
  if (width == 0 || height == 0) return error_damaged();
  if (width > limits.side || height > limits.side || width > limits.pixels / height) return error_pixels();
  return {};
}

const char* format_name(Format format) {
  switch (format) {
    case Format::kUnknown:
      return "unknown";
    case Format::kJpeg:
      return "JPEG";
    case Format::kPng:
      return "PNG";
    case Format::kGif:
      return "GIF";
    case Format::kWebp:
      return "WebP";
    case Format::kBmp:
      return "BMP";
  }
  return "unknown";
}

Format sniff_format(Bytes file) {
  const auto starts = [&](size_t at, const char* text, size_t size) {
    return file.size() >= at + size && std::memcmp(file.data() + at, text, size) == 0;
  };
  if (starts(0, "\xff\xd8\xff", 3)) return Format::kJpeg;
  if (starts(0, "\x89PNG\r\n\x1a\n", 8)) return Format::kPng;
  if (starts(0, "GIF87a", 6) || starts(0, "GIF89a", 6)) return Format::kGif;
  if (starts(0, "RIFF", 4) && starts(8, "WEBP", 4)) return Format::kWebp;
  if (starts(0, "BM", 2)) return Format::kBmp;
  return Format::kUnknown;
}

namespace {

Expected<Image> decode_whole(Bytes file, const DecodeLimits& limits, Format format) {
  switch (format) {
    case Format::kPng:
      return decode_png(file, limits);
    case Format::kGif:
      return decode_gif(file, limits);
    case Format::kWebp:
      return decode_webp(file, limits);
    case Format::kBmp:
      return decode_bmp(file, limits);
    case Format::kJpeg:
    case Format::kUnknown:
      break;
  }
  return error_format();
}

}  // namespace

Status decode_image(Bytes file, const DecodeLimits& limits, Image* image, RowWatch* watch) {
  if (file.size() > limits.bytes) return error_file_bytes();
  const Format format = sniff_format(file);
  if (format == Format::kJpeg) return decode_jpeg(file, limits, image, watch);
  TERN_ASSIGN_OR_RETURN(*image, decode_whole(file, limits, format));
  return {};
}

Expected<Image> decode_image(Bytes file, const DecodeLimits& limits) {
  Image image;
  TERN_RETURN_IF_ERROR(decode_image(file, limits, &image, nullptr));
  return image;
}

}  // namespace tern::media
