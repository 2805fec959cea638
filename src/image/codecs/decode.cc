#include "image/codecs/decode.h"

#include <cstring>
#include <string>
#include <string_view>

#include "image/codecs/decoders.h"

namespace tern::image {
namespace {

// "an AVIF file", for files of kinds that are known and not decoded; empty: of none.
std::string_view unsupported_kind(Bytes file) {
  struct Kind {
    size_t at;
    std::string_view start, name;
  };
  using namespace std::string_view_literals;
  static constexpr Kind kKinds[] = {
      {4, "jP  \r\n"sv, "a JPEG 2000 file"},
      {0, "\xff\x4f\xff\x51"sv, "a JPEG 2000 file"},
      {4, "ftypavif"sv, "an AVIF file"},
      {4, "ftypavis"sv, "an AVIF file"},
      {4, "ftypheic"sv, "a HEIC file"},
      {4, "ftypheix"sv, "a HEIC file"},
      {4, "ftypmif1"sv, "a HEIF file"},
      {0, "\0\0\1\0"sv, "an icon (ICO file)"},
      {0, "\0\0\2\0"sv, "a cursor (CUR file)"},
      {0, "\xff\x0a"sv, "a JPEG XL file"},
      {4, "JXL \r\n"sv, "a JPEG XL file"},
      {0, "P1"sv, "a PBM file"},
      {0, "P2"sv, "a PGM file"},
      {0, "P3"sv, "a PPM file"},
      {0, "P4"sv, "a PBM file"},
      {0, "P5"sv, "a PGM file"},
      {0, "P6"sv, "a PPM file"},
      {0, "8BPS"sv, "a Photoshop file"},
      {0, "%PDF"sv, "a PDF document"},
      {0, "%!PS"sv, "a PostScript document"},
      {0, "<svg"sv, "an SVG drawing"},
      {0, "<?xml"sv, "an XML text"},
      {0, "<!DOCTYPE"sv, "a web page"},
      {0, "<!doctype"sv, "a web page"},
      {0, "<html"sv, "a web page"},
      {4, "ftyp"sv, "a video or HEIF file"},
      {0, "\x1a\x45\xdf\xa3"sv, "a Matroska or WebM video"},
  };
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const Kind& kind : kKinds) {
    if (file.size() >= kind.at && text.substr(kind.at).starts_with(kind.start)) return kind.name;
  }
  return {};
}

Error error_pixels() { return make_error(ErrorCode::kTooLarge, "the picture has more pixels than the limit"); }

}  // namespace

Error error_format(Bytes file) {
  const std::string_view kind = unsupported_kind(file);
  std::string text("the picture is ");
  if (kind.empty()) {
    text += "in no supported format";
  } else {
    text.append(kind).append(", which is not supported");
  }
  return make_error(ErrorCode::kUnsupported, text + " (JPEG, PNG, GIF, WebP, BMP and TIFF are)");
}
Error error_truncated() { return make_error(ErrorCode::kCorrupt, "the picture is cut short"); }
Error error_damaged() { return make_error(ErrorCode::kCorrupt, "the picture's data is damaged"); }
Error error_variant() {
  return make_error(ErrorCode::kUnsupported, "the picture uses a variant of its format that is not supported");
}
Error error_memory() { return make_error(ErrorCode::kResourceExhausted, "not enough memory for the picture"); }
Error error_file_bytes() { return make_error(ErrorCode::kTooLarge, "the picture's file is larger than the limit"); }
Error error_frames() { return make_error(ErrorCode::kTooLarge, "the picture has more frames than the limit"); }
Error error_scans() { return make_error(ErrorCode::kTooLarge, "the picture has more passes than the limit"); }

Status check_size(uint64_t width, uint64_t height, const DecodeLimits& limits) {
  if (width == 0 || height == 0) return error_damaged();
  if (width > limits.side || height > limits.side || width > limits.pixels / height) return error_pixels();
  return {};
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
  if (starts(0, "II*\0", 4) || starts(0, "MM\0*", 4) || starts(0, "II+\0", 4) || starts(0, "MM\0+", 4)) {
    return Format::kTiff;
  }
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
    case Format::kTiff:
      return decode_tiff(file, limits);
    case Format::kJpeg:
    case Format::kUnknown:
      break;
  }
  return error_format(file);
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

}  // namespace tern::image
