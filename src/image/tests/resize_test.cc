#include "image/resize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/sha256.h"
#include "image/codecs/decode.h"
#include "image/tests/support.h"

namespace tern::image {
namespace {

Filter filter_named(const std::string& name) {
  return name == "lanczos" ? Filter::kLanczos : name == "bilinear" ? Filter::kBilinear : Filter::kBicubic;
}

void expect_resizes(const std::filesystem::path& folder, const std::filesystem::path& table, size_t least) {
  const auto rows = read_table(table, "resize");
  ASSERT_GE(rows.size(), least);
  std::map<std::string, Image> sources;
  for (const Row& row : rows) {
    if (!sources.contains(row[1])) {
      auto image = decode_image(read_file(folder / row[1]), {});
      ASSERT_TRUE(image.ok()) << row[1];
      sources.emplace(row[1], *convert_rgb(std::move(*image)));
    }
    for (const Isa isa : isas()) {
      const auto resized =
          resize_rgb(sources.at(row[1]), std::stoi(row[3]), std::stoi(row[4]), filter_named(row[2]), isa);
      ASSERT_TRUE(resized.ok());
      EXPECT_EQ(sha256_hex(resized->data(), resized->size_bytes()), row[5])
          << row[1] << " " << row[2] << " " << row[3] << "x" << row[4] << " " << isa_name(isa);
    }
  }
}

TEST(Resize, EqualsPillowOnOwnPictures) { expect_resizes(data_dir(), data_dir() / "cases.tsv", 700); }

TEST(Resize, EqualsPillowOnRealPictures) {
  const auto folder = shared_dir() / "data/images";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no pictures at " << folder;
  expect_resizes(folder, data_dir() / "shared.tsv", 60);
}

TEST(Resize, EqualsItselfOnEveryIsaForManySizes) {
  auto source = Image::make(Mode::kRGB, 61, 23);
  uint32_t state = 1;
  for (size_t i = 0; i < source->size_bytes(); ++i) {
    state = state * 1664525 + 1013904223;
    // Mostly extremes, so that over- and undershoot are clamped.
    source->data()[i] = static_cast<uint8_t>(state >> 31 ? (state >> 30 & 1 ? 255 : 0) : state >> 24);
  }
  for (int w = 1; w <= 140; w += 3) {
    for (int h = 1; h <= 70; h += 7) {
      const auto expected = resize_rgb(*source, w, h, Filter::kBicubic, Isa::kScalar);
      for (const Isa isa : isas()) {
        const auto got = resize_rgb(*source, w, h, Filter::kBicubic, isa);
        ASSERT_EQ(std::memcmp(expected->data(), got->data(), got->size_bytes()), 0)
            << w << "x" << h << " " << isa_name(isa);
      }
    }
  }
}

TEST(Resize, RowsComeOneByOne) {
  const auto source = decode_image(read_file(data_dir() / "scene.png"), {});
  for (const auto& [w, h] : {std::pair{97, 61}, {97, 30}, {50, 61}, {50, 30}, {200, 300}}) {
    const auto whole = resize_rgb(*source, w, h, Filter::kBicubic);
    auto rows = RowResizer::make(*source, w, h, Filter::kBicubic, detect_isa());
    ASSERT_TRUE(rows.ok());
    for (int y = 0; y < h; ++y) ASSERT_EQ(std::memcmp(rows->next(), whole->row(y), whole->row_bytes()), 0) << y;
    for (int from = 0; from <= h; from += 7) {
      auto rest = RowResizer::make(*source, w, h, Filter::kBicubic, detect_isa());
      ASSERT_TRUE(rest.ok());
      rest->skip_to(from);
      for (int y = from; y < h; ++y) ASSERT_EQ(std::memcmp(rest->next(), whole->row(y), whole->row_bytes()), 0) << y;
    }
  }
}

TEST(Resize, RefusesWhatItCannotDo) {
  const auto gray = Image::make(Mode::kL, 4, 4);
  EXPECT_EQ(resize_rgb(*gray, 2, 2, Filter::kBicubic).error().code, ErrorCode::kInvalidArgument);
  const auto rgb = Image::make(Mode::kRGB, 4, 4);
  EXPECT_EQ(resize_rgb(*rgb, 0, 2, Filter::kBicubic).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(resize_rgb(*rgb, kMaxResizeSide + 1, 2, Filter::kBicubic).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace tern::image
