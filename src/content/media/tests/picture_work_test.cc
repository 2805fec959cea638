// Pictures whose patches are made while they are decoded.
#include "content/media/tests/media_service_support.h"
#include "image/codecs/decode.h"
#include "image/patches.h"

namespace tern::content {
namespace {

using testing::HasSubstr;

// Pictures of many strips, whose rows are told while they are decoded and which all threads share: as one thread makes
// them from the whole picture, keys included, whatever the number of threads.
TEST_F(MediaServiceTest, StripsOfAPictureMakeTheWhole) {
  const std::vector<std::string> names{"scene_420.jpg", "progressive_444.jpg", "turn6.jpg", "scene.png", "cmyk.jpg"};
  const image::ResizeLimits limits{.min_pixels = 1500000, .max_pixels = 2500000};
  for (const int threads : {1, 2, 3, 8}) {
    SCOPED_TRACE(threads);
    MediaOptions own = options();
    own.threads = threads;
    own.profile.image_limits = limits;
    const auto service = make(own);
    for (size_t i = 0; i < names.size(); i++) {
      SCOPED_TRACE(names[i]);
      const Results results = get(*service, {image(names[i])});
      ASSERT_TRUE(results.ok()) << results.error().message;
      const PreparedMedia& got = *results->front();
      ASSERT_GT(got.units[0].h * got.units[0].w, 4096);
      const auto bytes = file_bytes(names[i]);
      const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      auto picture = image::apply_orientation(std::move(*image::decode_image(file, {})),
                                              image::exif_orientation(file.data(), file.size()));
      const auto rgb = image::convert_rgb(std::move(*picture));
      const VisionProfile& p = own.profile;
      const auto size = image::smart_resize(p.resize_rule, rgb->width(), rgb->height(), limits);
      const image::Normaliser normaliser(p.normalise, p.rescale, p.mean, p.std);
      std::vector<bf16> expected(got.patches->size() / 2);
      ASSERT_TRUE(image::make_patches(*rgb, static_cast<int>(size->width), static_cast<int>(size->height), p.filter,
                                      p.layout, normaliser, image::kAllSlots, expected.data(), expected.size())
                      .ok());
      EXPECT_EQ(std::memcmp(got.patches->data(), expected.data(), got.patches->size()), 0);
    }
  }
}

// The fingerprint that follows the rows is that of the whole: the same pixels out of another file are found again.
TEST_F(MediaServiceTest, APictureToldRowByRowHasTheKeyOfTheWhole) {
  MediaOptions own = options();
  own.processor_cache_gib = 1;
  own.profile.image_limits.min_pixels = 1500000;
  own.apply_exif = false;
  const auto service = make(own);
  const Results one = get(*service, {image("turn1.jpg")});
  const Results other = get(*service, {image("turn6.jpg")});  // equal pixels, another header
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->front(), other->front());
}

// The file ends when strips of its upper rows are made or being made.
TEST_F(MediaServiceTest, APictureCutShortEndsWithItsError) {
  MediaOptions own = options();
  own.threads = 8;
  own.profile.image_limits.min_pixels = 1500000;
  own.fetcher = [](std::string_view url, const fetch::FetchPolicy&) -> Expected<std::vector<std::byte>> {
    std::vector<std::byte> file = file_bytes("scene_444.jpg");
    file.resize(file.size() * static_cast<size_t>(url.size()) / 100);
    return file;
  };
  const auto service = make(own);
  for (const size_t percent : {40, 70, 90}) {
    const Results results = get(*service, {image(std::string(percent, 'x'))});
    ASSERT_FALSE(results.ok());
    EXPECT_THAT(results.error().message, HasSubstr("the picture is cut short"));
  }
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
}

}  // namespace
}  // namespace tern::content
