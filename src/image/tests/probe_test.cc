#include "image/codecs/probe.h"

#include <gtest/gtest.h>

#include "image/codecs/decode.h"
#include "image/tests/support.h"

namespace tern::image {
namespace {

// What decodes has the size that its header said, and enough memory was foretold; what the probe refuses, the decoder
// refuses, too.
void expect_agreement(std::span<const uint8_t> file, const std::string& name) {
  const auto facts = probe_image(file, {});
  const auto image = decode_image(file, {});
  if (!image.ok()) return;
  ASSERT_TRUE(facts.ok()) << name << ": " << facts.error().message;
  EXPECT_EQ(facts->width, image->width()) << name;
  EXPECT_EQ(facts->height, image->height()) << name;
  EXPECT_EQ(facts->format, sniff_format(file));
  EXPECT_TRUE(facts->alpha || (image->mode() != Mode::kRGBA && image->mode() != Mode::kLA)) << name;
  EXPECT_GE(facts->working_bytes, image->size_bytes() + size_t{3} * image->width() * image->height()) << name;
}

TEST(Probe, AgreesWithTheDecoders) {
  int seen = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(data_dir())) {
    if (!entry.is_regular_file() || entry.path().extension() == ".tsv") continue;
    seen++;
    expect_agreement(read_file(entry.path()), entry.path().filename().string());
  }
  EXPECT_GT(seen, 150);
}

TEST(Probe, AgreesOnEveryCut) {
  for (const char* name :
       {"scene_420.jpg", "palette8.png", "offset.gif", "lossless.webp", "rle8.bmp", "palette4.tif", "tiles.tif"}) {
    const auto file = read_file(data_dir() / name);
    for (size_t n = 0; n < file.size(); n += n < 200 ? 1 : 97) {
      expect_agreement({file.data(), n}, std::string(name) + " cut at " + std::to_string(n));
    }
  }
}

TEST(Probe, LimitsCountBeforeAnythingIsDecoded) {
  const auto file = read_file(data_dir() / "scene.png");
  DecodeLimits limits;
  limits.pixels = 10;
  EXPECT_EQ(probe_image(file, limits).error().code, ErrorCode::kTooLarge);
  limits = {};
  limits.bytes = 10;
  EXPECT_EQ(probe_image(file, limits).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(probe_image({}, {}).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tern::image
