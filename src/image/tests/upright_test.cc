#include "image/codecs/upright.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/sha256.h"
#include "image/tests/support.h"

namespace tern::image {
namespace {

// Every picture of the table: on white, upright, as RGB, as Pillow makes it when it is asked in FastDeploy's order.
TEST(Upright, EveryPictureEqualsPillow) {
  const auto rows = read_table(data_dir() / "cases.tsv", "composed");
  ASSERT_GE(rows.size(), 200u);
  size_t laid = 0, turned = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE(row[1]);
    const auto file = read_file(data_dir() / row[1]);
    auto image = decode_image(file, {});
    ASSERT_TRUE(image.ok()) << image.error().message;
    const int orientation = exif_orientation(file.data(), file.size());
    laid += is_transparent(*image) ? 1 : 0;
    turned += orientation > 1 ? 1 : 0;
    auto upright = compose_upright(std::move(*image), sniff_format(file), orientation);
    ASSERT_TRUE(upright.ok());
    const auto rgb = convert_rgb(std::move(*upright));
    EXPECT_EQ(std::to_string(rgb->width()), row[2]);
    EXPECT_EQ(std::to_string(rgb->height()), row[3]);
    EXPECT_EQ(sha256_hex(rgb->data(), rgb->size_bytes()), row[4]);
  }
  EXPECT_GT(laid, 30u);
  EXPECT_GT(turned, 30u);
}

// Pictures of many squares of the transposition, and ragged ones, by the definition.
TEST(Upright, TurnsEverySizeByTheDefinition) {
  for (const Mode mode : {Mode::kL, Mode::kLA, Mode::kRGB, Mode::kCMYK}) {
    for (const auto& [w, h] : {std::pair{1, 1}, {1, 70}, {33, 31}, {64, 96}, {95, 67}}) {
      auto image = Image::make(mode, w, h);
      const size_t bytes = static_cast<size_t>(bytes_per_pixel(mode));
      for (size_t i = 0; i < image->size_bytes(); ++i) image->data()[i] = static_cast<uint8_t>(i * 2654435761u >> 11);
      const std::vector<uint8_t> from(image->data(), image->data() + image->size_bytes());
      for (int orientation = 1; orientation <= 8; ++orientation) {
        auto copy = Image::make(mode, w, h);
        std::copy(from.begin(), from.end(), copy->data());
        const auto got = apply_orientation(std::move(*copy), orientation);
        for (int y = 0; y < h; ++y) {
          for (int x = 0; x < w; ++x) {
            // Where row 0 and column 0 of the stored picture are seen (Exif 2.3, tag Orientation).
            const int right = w - 1 - x, below = h - 1 - y;
            const int columns[] = {0, x, right, right, x, y, below, below, y};
            const int rows[] = {0, y, y, below, below, x, x, right, right};
            const uint8_t* pixel = got->row(rows[orientation]) + static_cast<size_t>(columns[orientation]) * bytes;
            ASSERT_TRUE(std::equal(pixel, pixel + bytes, &from[(static_cast<size_t>(y) * w + x) * bytes]))
                << mode_name(mode) << " " << w << "x" << h << " " << orientation << " at " << x << "," << y;
          }
        }
      }
    }
  }
}

TEST(Upright, OnWhiteByEveryAlphaAndValue) {
  auto image = Image::make(Mode::kLA, 256, 256);
  for (int a = 0; a < 256; ++a) {
    for (int v = 0; v < 256; ++v) {
      image->row(a)[2 * v] = static_cast<uint8_t>(v);
      image->row(a)[2 * v + 1] = static_cast<uint8_t>(a);
    }
  }
  const auto white = lay_on_white(*image);
  ASSERT_TRUE(white.ok());
  for (int a = 0; a < 256; ++a) {
    for (int v = 0; v < 256; ++v) {
      const int sum = 255 * (255 - a) + v * a;
      ASSERT_EQ(white->row(a)[3 * v], (2 * sum + 255) / 510) << "the nearest whole number, ties do not occur";
    }
  }
  EXPECT_FALSE(lay_on_white(*Image::make(Mode::kRGB, 2, 2)).ok());
}

}  // namespace
}  // namespace tern::image
