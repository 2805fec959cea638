// TIFF by libtiff, which sees a file only after plan_tiff has checked its directory.
#include <tiffio.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "image/codecs/tiff_plan.h"

namespace tern::image {
namespace {

// A file in memory, as libtiff reads it.
struct Source {
  Bytes file;
  uint64_t at = 0;
};

tmsize_t read_bytes(thandle_t handle, void* out, tmsize_t count) {
  auto* source = static_cast<Source*>(handle);
  if (count < 0 || source->at >= source->file.size()) return 0;
  const uint64_t step = std::min<uint64_t>(static_cast<uint64_t>(count), source->file.size() - source->at);
  std::memcpy(out, source->file.data() + source->at, step);
  source->at += step;
  return static_cast<tmsize_t>(step);
}
tmsize_t write_nothing(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek_to(thandle_t handle, toff_t offset, int from) {
  auto* source = static_cast<Source*>(handle);
  const uint64_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? source->at : source->file.size();
  source->at = base + offset;
  return source->at;
}
int close_nothing(thandle_t) { return 0; }
toff_t size_of(thandle_t handle) { return static_cast<Source*>(handle)->file.size(); }
int map_nothing(thandle_t, void**, toff_t*) { return 0; }
void unmap_nothing(thandle_t, void*, toff_t) {}
int ignore_message(TIFF*, void*, const char*, const char*, va_list) { return 1; }  // 1: handled, nothing is printed

struct Close {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using TiffPtr = std::unique_ptr<TIFF, Close>;
struct FreeOptions {
  void operator()(TIFFOpenOptions* options) const { TIFFOpenOptionsFree(options); }
};

TiffPtr open_tiff(Source* source, const TiffPlan& plan) {
  const std::unique_ptr<TIFFOpenOptions, FreeOptions> options(TIFFOpenOptionsAlloc());
  if (!options) return nullptr;
  // The most that libtiff may allocate at once: a list of strips or a codec's tables (16 MiB are ample), a copy of the
  // compressed data (at most the file), or a codec's working rows, which are a few decoded chunks (8 are ample).
  constexpr uint64_t kBase = uint64_t{16} << 20;
  const uint64_t max_alloc = kBase + source->file.size() + 8 * plan.chunk_bytes;
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), static_cast<tmsize_t>(max_alloc));
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), ignore_message, nullptr);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore_message, nullptr);
  // r: read only; m: no memory mapping, libtiff reads through read_bytes.
  return TiffPtr(TIFFClientOpenExt("", "rm", source, read_bytes, write_nothing, seek_to, close_nothing, size_of,
                                   map_nothing, unmap_nothing, options.get()));
}

// libtiff may read a damaged directory differently from plan_tiff: its sizes must be those that were checked.
bool sizes_match_plan(TIFF* tiff, const TiffPlan& plan) {
  uint32_t width = 0, height = 0;
  uint16_t bits = 0, samples = 0, planar = 0;
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planar);
  if (width != plan.width || height != plan.height || bits != plan.bits || samples != plan.per_pixel ||
      (samples > 1 && (planar == PLANARCONFIG_SEPARATE) != plan.planes) ||
      (TIFFIsTiled(tiff) != 0) != (plan.tile_width > 0)) {
    return false;
  }
  if (plan.tile_width == 0) return static_cast<uint64_t>(TIFFScanlineSize64(tiff)) == plan.chunk_bytes;
  uint32_t tile_width = 0, tile_height = 0;
  TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &tile_width);
  TIFFGetField(tiff, TIFFTAG_TILELENGTH, &tile_height);
  return tile_width == plan.tile_width && tile_height == plan.tile_height &&
         static_cast<uint64_t>(TIFFTileSize64(tiff)) == plan.chunk_bytes;
}

// Turns `count` pixels of a row, as libtiff gives them in `in`, into pixels of Image at `out`; both begin at a pixel.
// plane: the number of the sample that `in` holds where each sample has a plane of its own, else 0.
class Unpacker {
 public:
  explicit Unpacker(const TiffPlan& plan) : plan_(plan), step_(static_cast<size_t>(bytes_per_pixel(plan.mode))) {}

  void unpack(const uint8_t* in, size_t count, uint32_t plane, uint8_t* out) const {
    switch (plan_.samples) {
      case TiffSamples::kBits:
        return bits(in, count, out);
      case TiffSamples::kWords:
        std::memcpy(out, in, 2 * count);  // libtiff has converted them to the host's byte order
        return;
      case TiffSamples::kUnmultiply:
        return unmultiply(in, count, out);
      case TiffSamples::kBytes:
      case TiffSamples::kHighBytes:
        if (plan_.planes) return one_sample(in, count, out + plane);
        return samples(in, count, out);
    }
  }

 private:
  size_t sample_bytes() const { return plan_.bits == 16 ? 2 : 1; }
  // Where the upper byte of a sample lies: samples are in host order, little-endian.
  size_t high_byte() const { return plan_.bits == 16 ? 1 : 0; }

  void bits(const uint8_t* in, size_t count, uint8_t* out) const {
    const uint32_t bits = plan_.bits, max_value = (1u << bits) - 1;
    const uint32_t scale = plan_.mode == Mode::kP ? 1 : 255 / max_value;
    for (size_t x = 0; x < count; ++x) {
      const size_t at = x * bits;
      uint32_t v = in[at / 8] >> (8 - bits - at % 8) & max_value;
      if (plan_.inverted) v = max_value - v;
      out[x] = static_cast<uint8_t>(v * scale);
    }
  }
  void one_sample(const uint8_t* in, size_t count, uint8_t* out) const {
    for (size_t x = 0; x < count; ++x) out[x * step_] = in[x * sample_bytes() + high_byte()];
  }
  void samples(const uint8_t* in, size_t count, uint8_t* out) const {
    const size_t stride = plan_.per_pixel * sample_bytes();
    const uint8_t flip = plan_.inverted ? 255 : 0;
    for (size_t x = 0; x < count; ++x, in += stride, out += step_) {
      for (size_t s = 0; s < step_; ++s) out[s] = in[s * sample_bytes() + high_byte()] ^ flip;
    }
  }
  void unmultiply(const uint8_t* in, size_t count, uint8_t* out) const {
    const size_t stride = plan_.per_pixel * sample_bytes();
    for (size_t x = 0; x < count; ++x, in += stride, out += 4) {
      const int alpha = in[3 * sample_bytes() + high_byte()];
      for (size_t s = 0; s < 3; ++s) {
        const int v = in[s * sample_bytes() + high_byte()];
        out[s] = static_cast<uint8_t>(alpha == 0 ? 0 : std::min(255, v * 255 / alpha));
      }
      out[3] = static_cast<uint8_t>(alpha);
    }
  }

  const TiffPlan& plan_;
  const size_t step_;
};

bool read_rows(TIFF* tiff, const TiffPlan& plan, uint8_t* row, Image* image) {
  const Unpacker unpacker(plan);
  const uint32_t planes = plan.planes ? std::min<uint32_t>(plan.per_pixel, bytes_per_pixel(plan.mode)) : 1;
  for (uint32_t plane = 0; plane < planes; ++plane) {
    for (int y = 0; y < image->height(); ++y) {
      if (TIFFReadScanline(tiff, row, static_cast<uint32_t>(y), static_cast<uint16_t>(plane)) < 0) return false;
      unpacker.unpack(row, plan.width, plane, image->row(y));
    }
  }
  return true;
}

bool read_tiles(TIFF* tiff, const TiffPlan& plan, uint8_t* tile, Image* image) {
  const Unpacker unpacker(plan);
  const uint32_t planes = plan.planes ? std::min<uint32_t>(plan.per_pixel, bytes_per_pixel(plan.mode)) : 1;
  const auto tile_width = static_cast<uint32_t>(plan.tile_width), tile_height = static_cast<uint32_t>(plan.tile_height);
  const uint64_t row_bytes = plan.chunk_bytes / tile_height;
  const auto size = static_cast<tmsize_t>(plan.chunk_bytes);
  for (uint32_t plane = 0; plane < planes; ++plane) {
    for (uint32_t top = 0; top < plan.height; top += tile_height) {
      for (uint32_t left = 0; left < plan.width; left += tile_width) {
        const uint32_t number = TIFFComputeTile(tiff, left, top, 0, static_cast<uint16_t>(plane));
        if (TIFFReadEncodedTile(tiff, number, tile, size) != size) return false;
        const uint64_t columns = std::min<uint64_t>(tile_width, plan.width - left),
                       rows = std::min<uint64_t>(tile_height, plan.height - top);
        for (uint64_t y = 0; y < rows; ++y) {
          uint8_t* out = image->row(static_cast<int>(top + y)) + left * static_cast<size_t>(bytes_per_pixel(plan.mode));
          unpacker.unpack(tile + y * row_bytes, columns, plane, out);
        }
      }
    }
  }
  return true;
}

void read_palette(TIFF* tiff, const TiffPlan& plan, Image* image) {
  const uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_COLORMAP, &red, &green, &blue) == 0) return;
  for (size_t i = 0; i < size_t{1} << plan.bits; ++i) {
    image->palette[3 * i] = static_cast<uint8_t>(red[i] >> 8);
    image->palette[3 * i + 1] = static_cast<uint8_t>(green[i] >> 8);
    image->palette[3 * i + 2] = static_cast<uint8_t>(blue[i] >> 8);
  }
}

}  // namespace

Expected<Image> decode_tiff(Bytes file, const DecodeLimits& limits) {
  TERN_ASSIGN_OR_RETURN(const TiffPlan plan, plan_tiff(file, limits));
  Source source{file};
  const TiffPtr tiff = open_tiff(&source, plan);
  if (!tiff) return error_damaged();
  if (plan.ycbcr) TIFFSetField(tiff.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  if (!sizes_match_plan(tiff.get(), plan)) return error_damaged();
  TERN_ASSIGN_OR_RETURN(Image image, Image::make(plan.mode, plan.width, plan.height));
  std::unique_ptr<uint8_t[]> chunk(new (std::nothrow) uint8_t[plan.chunk_bytes]());
  if (!chunk) return error_memory();
  if (plan.mode == Mode::kP) read_palette(tiff.get(), plan, &image);
  const bool complete = plan.tile_width > 0 ? read_tiles(tiff.get(), plan, chunk.get(), &image)
                                            : read_rows(tiff.get(), plan, chunk.get(), &image);
  if (!complete) return error_damaged();
  return image;
}

}  // namespace tern::image
