// Windows and OS/2 bitmaps: 1, 4, 8, 16, 24 and 32 bits, bit fields, run lengths. Which mode comes out follows Pillow.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "image/codecs/decoders.h"

namespace tern::image {
namespace {

enum Compression : uint32_t { kRaw = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

// Where the samples of a 16-, 24- or 32-bit pixel stand: byte positions, or 5/6-bit fields.
struct Layout {
  Mode mode = Mode::kRGB;
  std::array<uint8_t, 4> byte{2, 1, 0, 3};  // of R, G, B, A
  int green_bits = 5;                       // of 16-bit pixels
};

struct Header {
  uint64_t width = 0, height = 0;
  bool top_down = false;
  uint32_t bits = 0, compression = kRaw;
  size_t pixels_at = 0;
  Layout layout;
  Mode mode = Mode::kRGB;  // of the result
  std::array<uint8_t, 768> palette{};
};

struct MaskRow {
  uint32_t bits, r, g, b, a;
  Layout layout;
};
constexpr MaskRow kMasks[] = {
    {32, 0xff0000, 0xff00, 0xff, 0, {Mode::kRGB, {2, 1, 0, 3}}},
    {32, 0xff000000, 0xff0000, 0xff00, 0, {Mode::kRGB, {3, 2, 1, 0}}},
    {32, 0xff000000, 0xff00, 0xff, 0, {Mode::kRGB, {3, 1, 0, 2}}},
    {32, 0xff000000, 0xff0000, 0xff00, 0xff, {Mode::kRGBA, {3, 2, 1, 0}}},
    {32, 0xff, 0xff00, 0xff0000, 0xff000000, {Mode::kRGBA, {0, 1, 2, 3}}},
    {32, 0xff0000, 0xff00, 0xff, 0xff000000, {Mode::kRGBA, {2, 1, 0, 3}}},
    {32, 0xff000000, 0xff00, 0xff, 0xff0000, {Mode::kRGBA, {3, 1, 0, 2}}},
    {32, 0, 0, 0, 0, {Mode::kRGBA, {2, 1, 0, 3}}},
    {24, 0xff0000, 0xff00, 0xff, 0, {Mode::kRGB, {2, 1, 0, 3}}},
    {16, 0xf800, 0x7e0, 0x1f, 0, {Mode::kRGB, {2, 1, 0, 3}, 6}},
    {16, 0x7c00, 0x3e0, 0x1f, 0, {Mode::kRGB, {2, 1, 0, 3}, 5}},
};

Status read_masks(Bytes file, uint32_t header_size, Header* header) {
  // Headers of 52 bytes and more hold the masks; after one of 40 they follow it.
  const size_t count = header_size >= 56 ? 4 : 3;
  if (file.size() < 54 + 4 * count) return error_truncated();
  std::array<uint32_t, 4> mask{};
  for (size_t i = 0; i < count; ++i) mask[i] = read_le32(file.data() + 54 + 4 * i);
  for (const MaskRow& row : kMasks) {
    if (row.bits != header->bits || row.r != mask[0] || row.g != mask[1] || row.b != mask[2]) continue;
    if (row.bits == 32 && row.a != mask[3]) continue;
    header->layout = row.layout;
    return {};
  }
  return error_variant();
}

// Fills palette and mode; colours that are only the grays of their index make the picture a gray one.
Status read_palette(Bytes file, size_t at, size_t entry, uint64_t colours, Header* header) {
  if (colours == 0 || colours > 65536) return error_variant();
  if (at > file.size() || file.size() - at < entry * colours) return error_truncated();
  const uint8_t* p = file.data() + at;
  const uint64_t used = std::min<uint64_t>(colours, 256);
  bool gray = (header->bits == 1 && colours == 2) || (header->bits == 8 && colours > 2 && colours <= 256);
  for (uint64_t i = 0; i < used; ++i, p += entry) {
    const int value = header->bits == 1 ? static_cast<int>(i) * 255 : static_cast<int>(i);
    gray &= p[0] == value && p[1] == value && p[2] == value;
    header->palette[3 * i] = p[2];
    header->palette[3 * i + 1] = p[1];
    header->palette[3 * i + 2] = p[0];
  }
  header->mode = !gray ? Mode::kP : header->bits == 1 ? Mode::k1 : Mode::kL;
  return {};
}

Status read_dimensions(Bytes file, uint32_t size, Header* header, uint64_t* colours) {
  const uint8_t* p = file.data() + 14;
  if (size == 12) {
    header->width = read_le16(p + 4);
    header->height = read_le16(p + 6);
    header->bits = read_le16(p + 10);
    return {};
  }
  header->top_down = p[11] == 0xff;  // a small negative height
  header->width = read_le32(p + 4);
  header->height = header->top_down ? uint64_t{1} << 32 : 0;
  header->height = header->top_down ? header->height - read_le32(p + 8) : read_le32(p + 8);
  header->bits = read_le16(p + 14);
  header->compression = read_le32(p + 16);
  *colours = read_le32(p + 32);
  return {};
}

Expected<Header> read_header(Bytes file, const DecodeLimits& limits) {
  if (file.size() < 18) return error_truncated();
  const uint32_t offset = read_le32(file.data() + 10), size = read_le32(file.data() + 14);
  static constexpr uint32_t kSizes[] = {12, 40, 52, 56, 64, 108, 124};
  if (std::find(std::begin(kSizes), std::end(kSizes), size) == std::end(kSizes)) return error_variant();
  if (file.size() < 14 + size_t{size}) return error_truncated();
  Header header;
  uint64_t colours = 0;
  TERN_RETURN_IF_ERROR(read_dimensions(file, size, &header, &colours));
  TERN_RETURN_IF_ERROR(check_size(header.width, header.height, limits));
  static constexpr uint32_t kDepths[] = {1, 4, 8, 16, 24, 32};
  if (std::find(std::begin(kDepths), std::end(kDepths), header.bits) == std::end(kDepths)) return error_variant();
  const bool indexed = header.bits <= 8;
  if (colours == 0) colours = indexed ? uint64_t{1} << header.bits : 0;
  const size_t entry = size == 12 ? 3 : 4;
  size_t after = 14 + size_t{size};
  switch (header.compression) {
    case kRaw:
      break;
    case kRle8:
    case kRle4:
      if (header.bits != (header.compression == kRle8 ? 8u : 4u)) return error_variant();
      break;
    case kBitFields:
      if (indexed) return error_variant();
      TERN_RETURN_IF_ERROR(read_masks(file, size, &header));
      if (size == 40) after += 12;
      break;
    default:
      return error_variant();
  }
  header.pixels_at = offset;
  if (indexed) {
    TERN_RETURN_IF_ERROR(read_palette(file, after, entry, colours, &header));
    after += entry * colours;
    if (offset == 14 + size) header.pixels_at = after;  // writers that forget to count the palette
  } else {
    header.mode = header.layout.mode;
  }
  if (header.pixels_at == 0) header.pixels_at = after;
  if (header.pixels_at > file.size()) return error_truncated();
  return header;
}

void unpack_indices(const Header& header, const uint8_t* in, uint8_t* out, int width) {
  const uint32_t bits = header.bits, mask = (1u << bits) - 1;
  for (int x = 0; x < width; ++x) {
    const uint32_t at = static_cast<uint32_t>(x) * bits;
    out[x] = static_cast<uint8_t>(in[at / 8] >> (8 - bits - at % 8) & mask);
    if (header.mode == Mode::k1) out[x] = out[x] != 0 ? 255 : 0;
  }
}

void unpack_colours(const Header& header, const uint8_t* in, uint8_t* out, int width) {
  const int step = static_cast<int>(header.bits / 8), samples = bytes_per_pixel(header.mode);
  const Layout& layout = header.layout;
  for (int x = 0; x < width; ++x, in += step, out += samples) {
    if (header.bits == 16) {
      const uint32_t v = read_le16(in), greens = (1u << layout.green_bits) - 1;
      out[0] = static_cast<uint8_t>((v >> (5 + layout.green_bits) & 31) * 255 / 31);
      out[1] = static_cast<uint8_t>((v >> 5 & greens) * 255 / greens);
      out[2] = static_cast<uint8_t>((v & 31) * 255 / 31);
    } else {
      for (int s = 0; s < samples; ++s) out[s] = in[layout.byte[s]];
    }
  }
}

Status read_raw(Bytes file, const Header& header, Image* image) {
  const uint64_t used = (header.width * header.bits + 7) / 8, stride = (header.width * header.bits + 31) / 32 * 4;
  // The last row may lack its padding.
  if (file.size() - header.pixels_at < stride * (header.height - 1) + used) return error_truncated();
  for (int y = 0; y < image->height(); ++y) {
    const uint8_t* in = file.data() + header.pixels_at + stride * y;
    uint8_t* out = image->row(header.top_down ? y : image->height() - 1 - y);
    if (header.bits <= 8) {
      unpack_indices(header, in, out, image->width());
    } else {
      unpack_colours(header, in, out, image->width());
    }
  }
  return {};
}

// Run lengths. Indices are appended to one long row, as Pillow does it; what is left out is index 0.
class RunReader {
 public:
  RunReader(Bytes file, size_t at, bool nibbles, uint64_t width, uint8_t* out, uint64_t count)
      : file_(file), at_(at), nibbles_(nibbles), width_(width), out_(out), count_(count) {}

  // False when the file ends, or says that it ends, before the picture is full.
  bool read() {
    while (filled_ < count_) {
      if (file_.size() - at_ < 2) return false;
      const uint8_t first = file_[at_], second = file_[at_ + 1];
      at_ += 2;
      if (first != 0) {
        run(first, second);
      } else if (second == 0) {
        if (filled_ % width_ != 0) zeros(width_ - filled_ % width_);
        x_ = 0;
      } else if (second == 1) {
        return false;
      } else if (second == 2) {
        if (file_.size() - at_ < 2) return false;
        zeros(file_[at_] + file_[at_ + 1] * width_);
        at_ += 2;
        x_ = filled_ % width_;
      } else if (!literal(second)) {
        return false;
      }
    }
    return true;
  }

 private:
  void put(uint8_t v) {
    if (filled_ < count_) out_[filled_++] = v;
  }
  void zeros(uint64_t count) {
    count = std::min(count, count_ - filled_);
    std::memset(out_ + filled_, 0, count);
    filled_ += count;
  }
  void run(uint64_t length, uint8_t value) {
    length = std::min(length, width_ - std::min(x_, width_));  // a run ends with its row
    for (uint64_t i = 0; i < length; ++i) put(!nibbles_ ? value : i % 2 == 0 ? value >> 4 : value & 15);
    x_ += length;
  }
  bool literal(uint64_t length) {
    const uint64_t fitting = std::min(length, count_ - filled_), bytes = nibbles_ ? (fitting + 1) / 2 : fitting;
    const uint64_t have = std::min<uint64_t>(bytes, file_.size() - at_);
    for (uint64_t i = 0; i < have; ++i) {
      const uint8_t v = file_[at_ + i];
      put(nibbles_ ? v >> 4 : v);
      if (nibbles_ && 2 * i + 1 < fitting) put(v & 15);
    }
    at_ += have;
    x_ += length;
    if (have < bytes) return false;
    if (at_ % 2 != 0 && at_ < file_.size()) ++at_;  // words, counted from the start of the file
    return true;
  }

  Bytes file_;
  size_t at_;
  bool nibbles_;
  uint64_t width_;
  uint8_t* out_;
  uint64_t count_, filled_ = 0, x_ = 0;
};

}  // namespace

Expected<Image> decode_bmp(Bytes file, const DecodeLimits& limits) {
  TERN_ASSIGN_OR_RETURN(const Header header, read_header(file, limits));
  const bool runs = header.compression == kRle8 || header.compression == kRle4;
  if (!runs) {  // before allocation: the pixels must be there
    const uint64_t stride = (header.width * header.bits + 31) / 32 * 4;
    if (file.size() - header.pixels_at < stride * (header.height - 1)) return error_truncated();
  }
  TERN_ASSIGN_OR_RETURN(Image image, Image::make(header.mode, header.width, header.height));
  image.palette = header.palette;
  if (!runs) {
    TERN_RETURN_IF_ERROR(read_raw(file, header, &image));
    return image;
  }
  RunReader reader(file, header.pixels_at, header.compression == kRle4, header.width, image.data(), image.size_bytes());
  if (!reader.read()) return error_truncated();
  if (!header.top_down) {
    std::vector<uint8_t> swap(image.row_bytes());
    for (int a = 0, b = image.height() - 1; a < b; ++a, --b) {
      std::memcpy(swap.data(), image.row(a), swap.size());
      std::memcpy(image.row(a), image.row(b), swap.size());
      std::memcpy(image.row(b), swap.data(), swap.size());
    }
  }
  return image;
}

}  // namespace tern::image
