#include "video/stamp.h"

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "image/codecs/decode.h"
#include "video/tests/support.h"

namespace tern::video {
namespace {

image::Image gradient(int width, int height) {
  auto image = image::Image::make(image::Mode::kRGB, width, height);
  for (int y = 0; y < height; ++y) {
    uint8_t* at = image->row(y);
    for (int x = 0; x < width; ++x, at += 3) {
      at[0] = static_cast<uint8_t>(x * 3 + y);
      at[1] = static_cast<uint8_t>(x + y * 5);
      at[2] = static_cast<uint8_t>(x * y);
    }
  }
  return std::move(*image);
}

TEST(Stamp, EqualsPillow) {
  if (font_file().empty()) GTEST_SKIP() << "fonts-roboto-unhinted is not installed";
  auto stamper = Stamper::open(font_file());
  ASSERT_TRUE(stamper.ok()) << stamper.error().message;
  const auto rows = read_table("stamp");
  ASSERT_GE(rows.size(), 60u);
  for (const Row& row : rows) {
    SCOPED_TRACE(row[1] + "x" + row[2] + " " + row[3]);
    auto image = gradient(std::stoi(row[1]), std::stoi(row[2]));
    EXPECT_EQ(time_text(std::stod(row[3])), row[4]);
    const auto status = stamper->stamp(image, row[4]);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(sha256_hex(image.data(), image.size_bytes()), row[5]);
  }
}

// The number of pixels that differ from a picture of the upper left corner.
int differing(const image::Image& image, const image::Image& corner, int& worst) {
  int count = 0;
  for (int y = 0; y < corner.height(); ++y) {
    for (int x = 0; x < corner.width(); ++x) {
      int here = 0;
      for (int k = 0; k < 3; ++k)
        here = std::max(here, std::abs(int{image.row(y)[3 * x + k]} - int{corner.row(y)[3 * x + k]}));
      count += here > 0;
      worst = std::max(worst, here);
    }
  }
  return count;
}

TEST(Stamp, Pictures) {
  if (font_file().empty()) GTEST_SKIP() << "fonts-roboto-unhinted is not installed";
  auto stamper = Stamper::open(font_file());
  ASSERT_TRUE(stamper.ok());
  const struct {
    const char* file;
    int width, height, most;
  } rows[] = {{"stamp_480x270.png", 480, 270, 0},
              {"stamp_128x64.png", 128, 64, 8}};  // below 9 pixels FreeType's auto-hinter differs between releases
  for (const auto& row : rows) {
    auto image = gradient(row.width, row.height);
    ASSERT_TRUE(stamper->stamp(image, time_text(3725.5)).ok());
    const auto expected = read_picture(data_dir() / row.file);
    ASSERT_TRUE(expected.ok());
    int worst = 0;
    EXPECT_LE(differing(image, *expected, worst), row.most) << row.file;
    EXPECT_LE(worst, row.most == 0 ? 0 : 64) << row.file;
  }
}

TEST(Stamp, TextsAndFonts) {
  EXPECT_EQ(time_text(0), "time: 00:00:00.00");
  EXPECT_EQ(time_text(59.999), "time: 00:00:60.00");  // as Python's %05.2f has it
  EXPECT_EQ(time_text(3661.5), "time: 01:01:01.50");
  EXPECT_EQ(time_text(360000), "time: 100:00:00.00");
  EXPECT_FALSE(Stamper::open("/nonexistent/font.ttf").ok());
  EXPECT_FALSE(Stamper::open((data_dir() / "h264.mp4").string()).ok());
}

}  // namespace
}  // namespace tern::video
