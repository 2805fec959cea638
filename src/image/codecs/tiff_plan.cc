#include "image/codecs/tiff_plan.h"

#include <algorithm>
#include <array>

#include "image/codecs/tiff_directory.h"

namespace tern::image {
namespace {

enum Tag : uint16_t {
  kWidth = 256,
  kHeight = 257,
  kBitsPerSample = 258,
  kCompression = 259,
  kPhotometric = 262,
  kFillOrder = 266,
  kStripOffsets = 273,
  kSamplesPerPixel = 277,
  kRowsPerStrip = 278,
  kPlanarConfiguration = 284,
  kColorMap = 320,
  kTileWidth = 322,
  kTileHeight = 323,
  kTileOffsets = 324,
  kExtraSamples = 338,
  kSampleFormat = 339,
};
enum Photometric : uint64_t { kWhiteIsZero, kBlackIsZero, kRgb, kPalette, kSeparated = 5, kYcbcr = 6 };
constexpr uint64_t kJpegCompression = 7;
constexpr uint64_t kMostSamples = 6;
// Strips or tiles of a file. One costs a call and 16 bytes.
constexpr uint64_t kMostChunks = uint64_t{1} << 20;

// None, CCITT RLE, Group 3, Group 4, LZW, JPEG, deflate, PackBits, deflate's old number.
bool known_compression(uint64_t number) {
  static constexpr std::array<uint64_t, 9> kKnown{1, 2, 3, 4, 5, 7, 8, 32773, 32946};
  return std::find(kKnown.begin(), kKnown.end(), number) != kKnown.end();
}

// The samples beside those of the colours. Pillow takes four samples of RGB as RGBA when the tag is missing.
enum class Extra { kNone, kIgnored, kAlpha, kMultiplied, kOther };
Extra extra_of(const TiffDirectory& directory, uint64_t colours, uint64_t samples) {
  const uint64_t listed = directory.count(kExtraSamples);
  if (listed == 0) {
    return samples == colours ? Extra::kNone : samples == 4 && colours == 3 ? Extra::kAlpha : Extra::kOther;
  }
  if (colours + listed != samples) return Extra::kOther;
  for (uint64_t i = 1; i < listed; ++i) {
    if (directory.value(kExtraSamples, i) != 0u) return Extra::kOther;
  }
  switch (directory.value_or(kExtraSamples, 0)) {
    case 0:
      return Extra::kIgnored;
    case 1:
      return Extra::kMultiplied;
    case 2:
    case 999:  // Corel Draw 10
      return Extra::kAlpha;
    default:
      return Extra::kOther;
  }
}

// All samples must have the same number of bits, and be unsigned numbers (eight bits of gray may call themselves
// signed, which changes nothing in Pillow).
bool same_bits(const TiffDirectory& directory, uint64_t samples, uint64_t bits) {
  const uint64_t listed = directory.count(kBitsPerSample);
  if (listed > 1 && listed < samples) return false;
  for (uint64_t i = 1; i < std::min(listed, samples); ++i) {
    if (directory.value(kBitsPerSample, i) != bits) return false;
  }
  for (uint64_t i = 0; i < std::min(directory.count(kSampleFormat), samples); ++i) {
    const auto format = directory.value(kSampleFormat, i);
    if (format != 1u && !(format == 2u && samples == 1 && bits == 8)) return false;
  }
  return true;
}

bool read_gray(uint64_t photometric, Extra extra, bool little, TiffPlan* plan) {
  plan->inverted = photometric == kWhiteIsZero;
  if (plan->per_pixel == 2) {
    plan->mode = Mode::kLA;
    return extra == Extra::kAlpha && plan->bits == 8 && !plan->inverted;
  }
  if (extra != Extra::kNone) return false;
  switch (plan->bits) {
    case 1:
      plan->mode = Mode::k1;
      plan->samples = TiffSamples::kBits;
      return true;
    case 2:
    case 4:
      plan->samples = TiffSamples::kBits;
      return true;
    case 8:
      return true;
    case 16:  // Pillow does not turn these over
      plan->mode = Mode::kI16;
      plan->samples = TiffSamples::kWords;
      if (plan->inverted && !little) return false;
      plan->inverted = false;
      return true;
    default:
      return false;
  }
}

bool read_palette(Extra extra, TiffPlan* plan) {
  plan->mode = Mode::kP;
  if (plan->bits == 8) return extra == Extra::kNone || (plan->per_pixel == 2 && extra != Extra::kOther);
  plan->samples = TiffSamples::kBits;
  return (plan->bits == 1 || plan->bits == 2 || plan->bits == 4) && plan->per_pixel == 1;
}

bool read_colours(uint64_t photometric, Extra extra, TiffPlan* plan) {
  if (plan->bits != 8 && plan->bits != 16) return false;
  if (plan->bits == 16) plan->samples = TiffSamples::kHighBytes;
  if (photometric == kSeparated) {
    plan->mode = Mode::kCMYK;
    return extra == Extra::kNone || extra == Extra::kIgnored;
  }
  plan->mode = extra == Extra::kAlpha || extra == Extra::kMultiplied ? Mode::kRGBA : Mode::kRGB;
  if (extra == Extra::kMultiplied && !plan->planes) plan->samples = TiffSamples::kUnmultiply;
  return extra != Extra::kOther;
}

bool read_samples(const TiffDirectory& directory, uint64_t photometric, uint64_t compression, TiffPlan* plan) {
  const uint64_t colours = photometric == kRgb ? 3 : photometric == kSeparated ? 4 : 1;
  const Extra extra = extra_of(directory, colours, plan->per_pixel);
  if (plan->planes && plan->per_pixel > 1 && (colours == 1 || plan->per_pixel > 4)) return false;
  switch (photometric) {
    case kWhiteIsZero:
    case kBlackIsZero:
      return read_gray(photometric, extra, directory.little(), plan);
    case kPalette:
      return read_palette(extra, plan);
    case kRgb:
    case kSeparated:
      return read_colours(photometric, extra, plan);
    case kYcbcr:
      if (plan->bits != 8 || directory.count(kExtraSamples) > 0) return false;
      if (plan->per_pixel == 1) return true;
      plan->mode = Mode::kRGB;
      plan->ycbcr = true;
      return plan->per_pixel == 3 && compression == kJpegCompression && !plan->planes;
    default:
      return false;
  }
}

// Places of strips or tiles: as many as the picture needs, of a size that the limits allow.
Status read_chunks(const TiffDirectory& directory, const DecodeLimits& limits, TiffPlan* plan) {
  uint64_t across = 1, down = 1;
  uint64_t row_pixels = plan->width;
  const bool tiles = directory.count(kTileOffsets) > 0;
  if (tiles) {
    plan->tile_width = directory.value_or(kTileWidth, 0);
    plan->tile_height = directory.value_or(kTileHeight, 0);
    TERN_RETURN_IF_ERROR(check_size(plan->tile_width, plan->tile_height, limits));
    across = (plan->width + plan->tile_width - 1) / plan->tile_width;
    down = (plan->height + plan->tile_height - 1) / plan->tile_height;
    row_pixels = plan->tile_width;
  } else {
    const uint64_t rows = std::min(directory.value_or(kRowsPerStrip, plan->height), plan->height);
    if (rows == 0) return error_damaged();
    down = (plan->height + rows - 1) / rows;
  }
  const uint64_t chunks = across * down * (plan->planes ? plan->per_pixel : 1);
  if (chunks > kMostChunks) return error_variant();
  if (directory.count(tiles ? kTileOffsets : kStripOffsets) < chunks) return error_truncated();
  const uint64_t samples = plan->planes ? 1 : plan->per_pixel;
  plan->chunk_bytes = (row_pixels * samples * plan->bits + 7) / 8 * (tiles ? plan->tile_height : 1);
  return {};
}

}  // namespace

Expected<TiffPlan> plan_tiff(Bytes file, const DecodeLimits& limits) {
  const auto directory = TiffDirectory::read(file);
  if (!directory) return error_truncated();
  TiffPlan plan;
  const auto width = directory->value(kWidth), height = directory->value(kHeight);
  if (!width || !height) return error_damaged();
  plan.width = *width;
  plan.height = *height;
  TERN_RETURN_IF_ERROR(check_size(plan.width, plan.height, limits));
  const uint64_t compression = directory->value_or(kCompression, 1), bits = directory->value_or(kBitsPerSample, 1),
                 samples = directory->value_or(kSamplesPerPixel, 1),
                 photometric = directory->value_or(kPhotometric, kWhiteIsZero);
  if (!known_compression(compression) || samples == 0 || samples > kMostSamples || bits == 0 || bits > 16 ||
      !same_bits(*directory, samples, bits)) {
    return error_variant();
  }
  plan.bits = static_cast<uint32_t>(bits);
  plan.per_pixel = static_cast<uint32_t>(samples);
  plan.planes = samples > 1 && directory->value_or(kPlanarConfiguration, 1) == 2;
  if (!read_samples(*directory, photometric, compression, &plan)) return error_variant();
  if (plan.mode == Mode::kP && directory->count(kColorMap) < uint64_t{3} << plan.bits) return error_damaged();
  TERN_RETURN_IF_ERROR(read_chunks(*directory, limits, &plan));
  return plan;
}

}  // namespace tern::image
