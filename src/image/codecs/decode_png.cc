#include <png.h>

#include <csetjmp>
#include <cstring>

#include "image/codecs/decoders.h"

namespace tern::image {
namespace {

struct Source {
  const uint8_t* at;
  size_t left;
  bool ended = false;
};

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (count > source->left) {
    source->ended = true;
    png_error(png, "");
  }
  std::memcpy(out, source->at, count);
  source->at += count;
  source->left -= count;
}

void on_error(png_structp png, png_const_charp) { png_longjmp(png, 1); }
void on_warning(png_structp, png_const_charp) {}

void count_row(png_structp png, png_row_infop, png_bytep) {
  ++*static_cast<uint64_t*>(png_get_user_transform_ptr(png));
}

// Every method that calls the library sets its own jump target and holds no object with a destructor.
class Reader {
 public:
  explicit Reader(Bytes file) : source_{file.data(), file.size()} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool ready() const { return info_ != nullptr; }

  bool read_header() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_read_fn(png_, &source_, read_bytes);
    png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);  // the caller has checked the size
    png_set_chunk_malloc_max(png_, 1 << 20);
    png_set_chunk_cache_max(png_, 64);
    // Only PLTE matters here; the others are not even unpacked.
    static const png_byte kIgnored[] =
        "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0sTER\0tEXt\0tIME\0tRNS\0"
        "zTXt";
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kIgnored, (sizeof(kIgnored)) / 5);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_read_info(png_, info_);
    return true;
  }

  // What Pillow makes of the file's depth and colour type.
  Mode mode() const {
    const int depth = png_get_bit_depth(png_, info_);
    switch (png_get_color_type(png_, info_)) {
      case PNG_COLOR_TYPE_GRAY:
        return depth == 1 ? Mode::k1 : depth == 16 ? Mode::kI16 : Mode::kL;
      case PNG_COLOR_TYPE_PALETTE:
        return Mode::kP;
      case PNG_COLOR_TYPE_GRAY_ALPHA:
        return depth == 16 ? Mode::kRGBA : Mode::kLA;
      case PNG_COLOR_TYPE_RGB:
        return Mode::kRGB;
      default:
        return Mode::kRGBA;
    }
  }

  void read_palette(uint8_t* out) {
    png_colorp entries = nullptr;
    int count = 0;
    if (png_get_PLTE(png_, info_, &entries, &count) == 0) return;
    for (int i = 0; i < count && i < 256; ++i) {
      out[3 * i] = entries[i].red;
      out[3 * i + 1] = entries[i].green;
      out[3 * i + 2] = entries[i].blue;
    }
  }

  // False when a row is missing. What follows the last row does not matter, as for Pillow.
  bool read_rows(Mode mode, uint8_t* rows, size_t row_bytes) {
    const uint32_t width = png_get_image_width(png_, info_), height = png_get_image_height(png_, info_);
    const bool interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    rows_expected_ = interlaced ? interlaced_rows(width, height) : height;
    rows_seen_ = 0;
    if (setjmp(png_jmpbuf(png_))) return rows_seen_ == rows_expected_;
    if (mode == Mode::kP) {
      png_set_packing(png_);
    } else if (mode == Mode::k1 || mode == Mode::kL) {
      png_set_expand_gray_1_2_4_to_8(png_);
    } else if (mode == Mode::kI16) {
      png_set_swap(png_);
    } else {
      png_set_strip_16(png_);
      if (mode == Mode::kRGBA) png_set_gray_to_rgb(png_);
    }
    png_set_read_user_transform_fn(png_, count_row);
    png_set_user_transform_info(png_, &rows_seen_, 0, 0);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != row_bytes) return false;
    for (int pass = 0; pass < passes; ++pass) {
      for (uint32_t y = 0; y < height; ++y) png_read_row(png_, rows + row_bytes * y, nullptr);
    }
    return true;
  }

  Error error() const { return source_.ended ? error_truncated() : error_damaged(); }

 private:
  static uint64_t interlaced_rows(uint32_t width, uint32_t height) {
    uint64_t rows = 0;
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
      if (PNG_PASS_COLS(width, pass) > 0) rows += PNG_PASS_ROWS(height, pass);
    }
    return rows;
  }

  Source source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  uint64_t rows_expected_ = 0, rows_seen_ = 0;
};

}  // namespace

Expected<Image> decode_png(Bytes file, const DecodeLimits& limits) {
  // Signature, then IHDR: length, name, width, height.
  if (file.size() < 33) return error_truncated();
  if (std::memcmp(file.data() + 12, "IHDR", 4) != 0) return error_damaged();
  const uint32_t width = read_be32(file.data() + 16), height = read_be32(file.data() + 20);
  TERN_RETURN_IF_ERROR(check_size(width, height, limits));
  Reader reader(file);
  if (!reader.ready()) return error_memory();
  if (!reader.read_header()) return reader.error();
  const Mode mode = reader.mode();
  TERN_ASSIGN_OR_RETURN(Image image, Image::make(mode, width, height));
  if (mode == Mode::kP) reader.read_palette(image.palette.data());
  if (!reader.read_rows(mode, image.data(), image.row_bytes())) return reader.error();
  return image;
}

}  // namespace tern::image
