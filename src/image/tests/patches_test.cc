#include "image/patches.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "base/sha256.h"
#include "image/codecs/decode.h"
#include "image/smart_resize.h"
#include "image/tests/support.h"

namespace tern::image {
namespace {

struct Model {
  ResizeRule resize;
  PatchLayout layout;
  NormaliseRule rule;
  std::array<float, 3> mean, std;
};

Model model_named(const std::string& name) {
  const std::array<float, 3> half{0.5f, 0.5f, 0.5f};
  if (name == "ernie") {
    return {ResizeRule::kErnieVl, {14, 2, 1, PatchOrder::kBlocks}, NormaliseRule::kFloat, kClipMean, kClipStd};
  }
  if (name == "paddleocr") {
    return {ResizeRule::kPaddleOcrVl, {14, 2, 1, PatchOrder::kRaster}, NormaliseRule::kDouble, half, half};
  }
  if (name == "qwen") {
    return {ResizeRule::kQwenVl, {14, 2, 2, PatchOrder::kBlocks}, NormaliseRule::kDouble, kClipMean, kClipStd};
  }
  return {ResizeRule::kQwenVl, {14, 2, 1, PatchOrder::kBlocks}, NormaliseRule::kFolded, kClipMean, kClipStd};
}

Image open_rgb(const std::filesystem::path& path) {
  auto image = decode_image(read_file(path), {});
  EXPECT_TRUE(image.ok()) << path;
  return *convert_rgb(std::move(*image));
}

void expect_patches(const std::filesystem::path& folder, const std::filesystem::path& table, size_t least) {
  const auto rows = read_table(table, "patches");
  ASSERT_GE(rows.size(), least);
  for (const Row& row : rows) {
    SCOPED_TRACE(row[1] + " " + row[2]);
    const Model model = model_named(row[2]);
    const Image rgb = open_rgb(folder / row[1]);
    ResizeLimits limits;
    limits.min_pixels = std::stoll(row[3]);
    limits.max_pixels = std::stoll(row[4]);
    const auto size = smart_resize(model.resize, rgb.width(), rgb.height(), limits);
    if (row[7] == "-") {
      EXPECT_FALSE(size.ok());
      continue;
    }
    ASSERT_TRUE(size.ok());
    ASSERT_EQ(std::to_string(size->width), row[5]);
    ASSERT_EQ(std::to_string(size->height), row[6]);
    const int w = static_cast<int>(size->width), h = static_cast<int>(size->height);
    const auto grid = patch_grid(model.layout, w, h);
    const size_t values = patch_values(model.layout) * grid->h * grid->w;
    EXPECT_EQ(picture_tokens(model.layout, *grid), int64_t{h / 28} * (w / 28));
    const Normaliser normaliser(model.rule, 1.0 / 255, model.mean, model.std);
    EXPECT_TRUE(normaliser.table().fast);
    std::vector<float> f(values), other(values);
    std::vector<bf16> b(values), other16(values);
    const auto make = [&](auto& out, Isa isa) {
      return make_patches(rgb, w, h, Filter::kBicubic, model.layout, normaliser, kAllSlots, out.data(), values, isa)
          .ok();
    };
    ASSERT_TRUE(make(f, Isa::kScalar) && make(b, Isa::kScalar));
    EXPECT_EQ(sha256_hex(f.data(), values * 4), row[7]);
    EXPECT_EQ(sha256_hex(b.data(), values * 2), row[8]);
    for (const Isa isa : isas()) {
      ASSERT_TRUE(make(other, isa) && make(other16, isa));
      EXPECT_EQ(std::memcmp(f.data(), other.data(), values * 4), 0) << isa_name(isa);
      EXPECT_EQ(std::memcmp(b.data(), other16.data(), values * 2), 0) << isa_name(isa);
    }
  }
}

TEST(Patches, EqualNumpyOnOwnPictures) { expect_patches(data_dir(), data_dir() / "cases.tsv", 15); }

TEST(Patches, EqualNumpyOnRealPictures) {
  const auto folder = shared_dir() / "data/images";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no pictures at " << folder;
  expect_patches(folder, data_dir() / "shared.tsv", 30);
}

// The first 1,000 pixel values of a photo, from another implementation of Qwen2.5-VL's preprocessing.
TEST(Patches, NearPublishedQwenValues) {
  const auto folder = shared_dir() / "data/images";
  std::ifstream in(folder / "reference/qwen2.5-vl_photo_street_first1000.txt");
  if (!in) GTEST_SKIP() << "no reference values at " << folder;
  const Model model = model_named("qwen");
  const Image rgb = open_rgb(folder / "photo_street.jpg");
  ResizeLimits limits;
  limits.max_pixels = 12845056;
  const auto size = smart_resize(model.resize, rgb.width(), rgb.height(), limits);
  ASSERT_EQ(*size, (Size{1288, 868}));
  const auto grid = patch_grid(model.layout, 1288, 868);
  EXPECT_EQ(*grid, (Grid{1, 62, 92}));
  std::vector<float> values(patch_values(model.layout) * grid->h * grid->w);
  const Normaliser normaliser(model.rule, 1.0 / 255, model.mean, model.std);
  ASSERT_TRUE(
      make_patches(rgb, 1288, 868, Filter::kBicubic, model.layout, normaliser, kAllSlots, values.data(), values.size())
          .ok());
  double sum = 0, worst = 0;
  int count = 0;
  for (double v = 0; in >> v; ++count) {
    const double d = v - values[count];
    sum += d * d;
    worst = std::max(worst, std::fabs(d));
  }
  ASSERT_EQ(count, 1000);
  EXPECT_LT(sum / count, 1e-3);
  RecordProperty("mean_squared_error", std::to_string(sum / count));
  RecordProperty("largest_difference", std::to_string(worst));
}

// Pixel tensors of the reference cases of both vision models (HF processors, which fold nothing: kDouble).
void expect_golden(const std::string& name, PatchOrder order, ResizeRule rule) {
  const auto folder = shared_dir() / "golden/cases" / name;
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference case at " << folder;
  const auto file = read_file(folder / "golden.safetensors");
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), 8);
  const std::string header(file.begin() + 8, file.begin() + 8 + static_cast<ptrdiff_t>(header_size));
  const auto tensor = [&](const std::string& key) {
    const size_t at = header.find("\"data_offsets\":[", header.find("\"" + key + "\""));
    size_t used = 0;
    const std::string rest = header.substr(at + 16, 60);
    const size_t begin = std::stoull(rest, &used), end = std::stoull(rest.substr(used + 1));
    std::vector<float> values((end - begin) / 4);
    std::memcpy(values.data(), file.data() + 8 + header_size + begin, end - begin);
    return values;
  };
  const PatchLayout layout{14, 2, 1, order};
  const Normaliser normaliser(NormaliseRule::kDouble, 0.00392156862745098, kClipMean, kClipStd);
  ResizeLimits limits;
  limits.min_pixels = 3136;
  limits.max_pixels = 37632;
  for (const auto& [key, files] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"one", {"one.0.png"}}, {"tall", {"tall.0.png"}}, {"two", {"two.0.png", "two.1.png"}}}) {
    std::vector<float> got;
    for (const auto& picture : files) {
      const Image rgb = open_rgb(folder / picture);
      const auto size = smart_resize(rule, rgb.width(), rgb.height(), limits);
      ASSERT_TRUE(size.ok());
      const int w = static_cast<int>(size->width), h = static_cast<int>(size->height);
      const auto grid = patch_grid(layout, w, h);
      std::vector<float> values(patch_values(layout) * grid->h * grid->w);
      ASSERT_TRUE(
          make_patches(rgb, w, h, Filter::kBicubic, layout, normaliser, kAllSlots, values.data(), values.size()).ok());
      got.insert(got.end(), values.begin(), values.end());
    }
    const auto expected = tensor(key + ".pixel_values");
    ASSERT_EQ(got.size(), expected.size()) << key;
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0) << key;
  }
}

TEST(Patches, EqualTheErnieReferenceCase) {
  expect_golden("ernie4_5_vl_moe", PatchOrder::kBlocks, ResizeRule::kQwenVl);
}
TEST(Patches, EqualThePaddleOcrReferenceCase) {
  expect_golden("paddleocr_vl", PatchOrder::kRaster, ResizeRule::kPaddleOcrVl);
}

// Without a shared case: where each pixel of a numbered picture lands.
TEST(Patches, OrderOfBothKinds) {
  auto image = Image::make(Mode::kRGB, 56, 28);
  for (int y = 0; y < 28; ++y) {
    for (int x = 0; x < 56; ++x) {
      image->row(y)[3 * x] = static_cast<uint8_t>(x / 14 + 4 * (y / 14));  // the patch's raster number
      image->row(y)[3 * x + 1] = static_cast<uint8_t>(x % 14);
      image->row(y)[3 * x + 2] = static_cast<uint8_t>(y % 14);
    }
  }
  const Normaliser identity(NormaliseRule::kFloat, 1.0, {0, 0, 0}, {1, 1, 1});
  const int blocks[] = {0, 1, 4, 5, 2, 3, 6, 7};
  for (const Isa isa : isas()) {
    for (const PatchOrder order : {PatchOrder::kRaster, PatchOrder::kBlocks}) {
      std::vector<float> out(8 * 2 * 588, -1.0f);
      const PatchLayout layout{14, 2, 2, order};
      ASSERT_TRUE(
          make_patches(*image, 56, 28, Filter::kBicubic, layout, identity, 1, out.data(), out.size(), isa).ok());
      for (int p = 0; p < 8; ++p) {
        const float* patch = &out[p * 1176];
        const float number = static_cast<float>(order == PatchOrder::kRaster ? p : blocks[p]);
        for (int y = 0; y < 14; ++y) {
          for (int x = 0; x < 14; ++x) {
            const int at = 14 * y + x;
            ASSERT_EQ(patch[at], -1.0f) << "the other slot stays";
            ASSERT_EQ(patch[196 + at], number);
            ASSERT_EQ(patch[392 + 196 + at], static_cast<float>(x));
            ASSERT_EQ(patch[784 + 196 + at], static_cast<float>(y));
          }
        }
      }
    }
  }
}

TEST(Patches, OtherPatchSizesOnEveryIsa) {
  const Image rgb = open_rgb(data_dir() / "scene.png");
  for (const int patch : {2, 7, 8, 10, 11, 12, 15, 16, 20}) {
    const PatchLayout layout{patch, 2, 1, PatchOrder::kBlocks};
    const int w = 4 * patch, h = 6 * patch;
    const size_t values = patch_values(layout) * 24;
    for (const double rescale : {1 / 255.0, 0.01}) {
      const Normaliser normaliser(NormaliseRule::kDouble, rescale, kClipMean, kClipStd);
      std::vector<bf16> expected(values), got(values);
      ASSERT_TRUE(make_patches(rgb, w, h, Filter::kBicubic, layout, normaliser, kAllSlots, expected.data(), values,
                               Isa::kScalar)
                      .ok());
      for (const Isa isa : isas()) {
        ASSERT_TRUE(
            make_patches(rgb, w, h, Filter::kBicubic, layout, normaliser, kAllSlots, got.data(), values, isa).ok());
        ASSERT_EQ(std::memcmp(expected.data(), got.data(), values * 2), 0) << patch << " " << isa_name(isa);
      }
    }
  }
}

// Bands in any order give what the whole gives, and touch nothing of each other.
TEST(Patches, BandsMakeTheWhole) {
  const Image rgb = open_rgb(data_dir() / "scene.png");
  const Normaliser normaliser(NormaliseRule::kDouble, 1.0 / 255, kClipMean, kClipStd);
  for (const PatchOrder order : {PatchOrder::kRaster, PatchOrder::kBlocks}) {
    const PatchLayout layout{14, 2, 1, order};
    for (const auto& [w, h] : {std::pair{112, 84}, {28, 140}, {rgb.width() / 28 * 28, rgb.height() / 28 * 28}}) {
      const Grid grid = *patch_grid(layout, w, h);
      const size_t row = patch_values(layout), values = row * grid.h * grid.w;
      const auto maker = PatchMaker::make(rgb.width(), rgb.height(), w, h, Filter::kBicubic, layout, normaliser);
      ASSERT_TRUE(maker.ok());
      const auto make = [&](auto& out, Band band) {
        return maker->write(rgb, kAllSlots, out.data(), values, band).ok();
      };
      std::vector<bf16> whole(values), out(values);
      ASSERT_TRUE(make(whole, {}));
      for (int begin = (grid.h - 1) / 3 * 3; begin >= 0; begin -= 3) ASSERT_TRUE(make(out, {begin, begin + 3}));
      EXPECT_EQ(std::memcmp(whole.data(), out.data(), values * 2), 0) << w << "x" << h;
      std::vector<bf16> one(values);
      ASSERT_TRUE(make(one, {1, 2}));
      size_t differ = 0;
      for (size_t p = 0; p < values; p += row) differ += std::memcmp(&one[p], &whole[p], row * 2) == 0 ? 0 : 1;
      EXPECT_EQ(differ, static_cast<size_t>(grid.h - 1) * grid.w) << "only patches of the band are written";
    }
  }
}

// A band depends on no more of the picture than it says, whatever stands in the rows that are not there yet.
TEST(Patches, BandsNeedTheRowsThatTheySay) {
  const Image rgb = open_rgb(data_dir() / "scene.png");
  const Normaliser normaliser(NormaliseRule::kDouble, 1.0 / 255, kClipMean, kClipStd);
  const PatchLayout layout{14, 2, 1, PatchOrder::kRaster};
  const int own_w = rgb.width() / 28 * 28, own_h = rgb.height() / 28 * 28;
  auto same = Image::make(Mode::kRGB, own_w, own_h);  // both sides stay
  for (int y = 0; y < own_h; ++y) std::memcpy(same->row(y), rgb.row(y), same->row_bytes());
  for (const Image* source : std::initializer_list<const Image*>{&rgb, &*same}) {
    for (const auto& [w, h] : {std::pair{112, 84}, {28, 140}, {own_w, own_h}, {own_w, 2 * own_h}, {4 * own_w, own_h}}) {
      const auto maker =
          PatchMaker::make(source->width(), source->height(), w, h, Filter::kBicubic, layout, normaliser);
      ASSERT_TRUE(maker.ok());
      const Grid grid = maker->grid();
      const size_t row = patch_values(layout) * grid.w, values = row * grid.h;
      std::vector<bf16> whole(values), out(values);
      ASSERT_TRUE(maker->write(*source, kAllSlots, whole.data(), values).ok());
      for (int begin = 0; begin < grid.h; begin += 2) {
        const Band band{begin, std::min(begin + 2, grid.h)};
        const Rows rows = maker->source_rows(band);
        auto part = Image::make(Mode::kRGB, source->width(), source->height());
        std::memset(part->data(), begin % 4 == 0 ? 0 : 255, part->size_bytes());
        std::memcpy(part->row(rows.begin), source->row(rows.begin),
                    source->row_bytes() * static_cast<size_t>(rows.end - rows.begin));
        ASSERT_TRUE(maker->write(*part, kAllSlots, out.data(), values, band).ok());
      }
      EXPECT_EQ(std::memcmp(whole.data(), out.data(), values * 2), 0) << w << "x" << h;
      EXPECT_LT(maker->source_rows({0, 1}).end, source->height());
      EXPECT_GT(maker->source_rows({grid.h - 1, grid.h}).begin, 0);
      EXPECT_EQ(maker->source_rows({}).begin, 0);
      EXPECT_EQ(maker->source_rows({}).end, source->height());
    }
  }
}

TEST(Patches, RefusesWrongSizesAndPlaces) {
  const Image rgb = open_rgb(data_dir() / "scene.png");
  const Normaliser n(NormaliseRule::kFloat, 1 / 255.0, kClipMean, kClipStd);
  std::vector<float> out(4 * 588);
  const auto code = [&](int w, int slot, size_t size) {
    const auto status = make_patches(rgb, w, 28, Filter::kBicubic, {}, n, slot, out.data(), size);
    return status.ok() ? ErrorCode::kInternal : status.error().code;
  };
  EXPECT_EQ(code(28, kAllSlots, out.size()), ErrorCode::kInternal);  // fine
  EXPECT_EQ(code(42, kAllSlots, out.size()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(28, 1, out.size()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(28, kAllSlots, out.size() - 1), ErrorCode::kInvalidArgument);
}

TEST(SmartResize, EqualsTheOriginals) {
  const auto rows = read_table(data_dir() / "smart.tsv", "smart");
  ASSERT_GE(rows.size(), 1000u);
  for (const Row& row : rows) {
    const ResizeRule rule = row[1] == "ernie"       ? ResizeRule::kErnieVl
                            : row[1] == "paddleocr" ? ResizeRule::kPaddleOcrVl
                                                    : ResizeRule::kQwenVl;
    ResizeLimits limits;
    limits.min_pixels = std::stoll(row[4]);
    limits.max_pixels = std::stoll(row[5]);
    limits.keep_factor = row[6] == "1";
    const auto size = smart_resize(rule, std::stoll(row[2]), std::stoll(row[3]), limits);
    const Size got = size.ok() ? *size : Size{};
    EXPECT_EQ(got, (Size{std::stoll(row[7]), std::stoll(row[8])}))
        << row[1] << " " << row[2] << "x" << row[3] << " " << row[4] << " " << row[5];
  }
  EXPECT_FALSE(smart_resize(ResizeRule::kQwenVl, 0, 5, {}).ok());
}

}  // namespace
}  // namespace tern::image
