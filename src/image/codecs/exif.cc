#include <cstring>
#include <string_view>

#include "image/codecs/decoders.h"
#include "image/codecs/tiff_directory.h"

namespace tern::image {
namespace {

constexpr uint16_t kOrientationTag = 0x112, kXmpTag = 700;

// Where a file keeps its orientation.
struct Notes {
  Bytes exif, xmp;
};

// XMP is XML; the original looks for the first tiff:Orientation="N" or tiff:Orientation>N in its text.
int xmp_orientation(Bytes text) {
  constexpr std::string_view kName = "tiff:Orientation";
  const std::string_view all(reinterpret_cast<const char*>(text.data()), text.size());
  for (size_t at = all.find(kName); at != std::string_view::npos; at = all.find(kName, at + 1)) {
    std::string_view rest = all.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') continue;
    return rest[0] - '0';
  }
  return 1;
}

int orientation_of(const Notes& notes) {
  const auto directory = TiffDirectory::read(notes.exif);
  const auto tag = directory ? directory->value(kOrientationTag) : std::nullopt;
  const uint64_t found = tag ? *tag : static_cast<uint64_t>(xmp_orientation(notes.xmp));
  return found >= 1 && found <= 8 ? static_cast<int>(found) : 1;
}

bool starts_with(Bytes block, std::string_view text) {
  return block.size() >= text.size() && std::memcmp(block.data(), text.data(), text.size()) == 0;
}

Bytes strip_exif_name(Bytes block) {
  return starts_with(block, std::string_view("Exif\0\0", 6)) ? block.subspan(6) : block;
}

Notes jpeg_notes(Bytes file) {
  constexpr std::string_view kXmpName("http://ns.adobe.com/xap/1.0/", 29);  // with its zero
  Notes notes;
  for (size_t at = 2; at + 4 <= file.size() && file[at] == 0xff;) {
    const uint8_t marker = file[at + 1];
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) break;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {  // markers without a length
      at += 2;
      continue;
    }
    const size_t length = read_be16(&file[at + 2]);
    if (length < 2 || length > file.size() - at - 2) break;
    const Bytes block = file.subspan(at + 4, length - 2);
    if (marker == 0xe1 && starts_with(block, std::string_view("Exif\0\0", 6))) {
      if (notes.exif.empty()) notes.exif = block.subspan(6);
    } else if (marker == 0xe1 && starts_with(block, kXmpName)) {
      notes.xmp = block.subspan(kXmpName.size());
    }
    at += 2 + length;
  }
  return notes;
}

// XMP stands in an iTXt chunk; one that is compressed is not read.
Notes png_notes(Bytes file) {
  constexpr std::string_view kXmpName("XML:com.adobe.xmp\0\0\0", 20);  // keyword, not compressed, method 0
  Notes notes;
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length = read_be32(&file[at]);
    if (length > file.size() - at - 12) break;
    const Bytes block = file.subspan(at + 8, length);
    if (std::memcmp(&file[at + 4], "eXIf", 4) == 0) {
      notes.exif = strip_exif_name(block);
    } else if (std::memcmp(&file[at + 4], "iTXt", 4) == 0 && starts_with(block, kXmpName)) {
      notes.xmp = block.subspan(kXmpName.size());
    }
    at += 12 + length;
  }
  return notes;
}

Notes webp_notes(Bytes file) {
  Notes notes;
  for (size_t at = 12; at + 8 <= file.size();) {
    const size_t length = read_le32(&file[at + 4]);
    if (length > file.size() - at - 8) break;
    const Bytes block = file.subspan(at + 8, length);
    if (std::memcmp(&file[at], "EXIF", 4) == 0) {
      notes.exif = strip_exif_name(block);
    } else if (std::memcmp(&file[at], "XMP ", 4) == 0) {
      notes.xmp = block;
    }
    at += 8 + length + length % 2;
  }
  return notes;
}

Notes tiff_notes(Bytes file) {
  const auto directory = TiffDirectory::read(file);
  return {file, directory ? directory->bytes(kXmpTag) : Bytes()};
}

}  // namespace

int exif_orientation(const uint8_t* data, size_t size) {
  const Bytes file(data, size);
  switch (sniff_format(file)) {
    case Format::kJpeg:
      return orientation_of(jpeg_notes(file));
    case Format::kPng:
      return orientation_of(png_notes(file));
    case Format::kWebp:
      return orientation_of(webp_notes(file));
    case Format::kTiff:
      return orientation_of(tiff_notes(file));
    default:
      return 1;
  }
}

}  // namespace tern::image
