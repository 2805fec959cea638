#include "base/sha256.h"
#include "content/media/tests/media_service_support.h"
#include "image/codecs/decode.h"
#include "image/codecs/upright.h"
#include "image/patches.h"
#include "image/resize.h"
#include "image/smart_resize.h"

namespace tern::content {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST_F(MediaServiceTest, PatchesAreThoseOfTheMediaRoomInTheOrderOfTheParts) {
  const auto service = make(options());
  const std::vector<std::string> names{"scene.png", "cmyk.jpg", "lossy_alpha.webp", "gray16.png", "scene_420.jpg"};
  std::vector<MediaPart> parts;
  for (const auto& name : names) parts.push_back(image(name));
  const Results results = get(*service, parts);
  ASSERT_TRUE(results.ok()) << results.error().message;
  ASSERT_EQ(results->size(), names.size());
  const VisionProfile profile = must_read_profile(kErnieConfig, "{}");
  const image::Normaliser normaliser(profile.normalise, profile.rescale, profile.mean, profile.std);
  std::set<uint64_t> keys;
  for (size_t i = 0; i < names.size(); i++) {
    const PreparedMedia& got = *(*results)[i];
    const auto bytes = file_bytes(names[i]);
    auto picture = image::decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, {});
    ASSERT_TRUE(picture.ok());
    auto whole = image::compose_upright(std::move(*picture), image::Format::kUnknown, 1);
    auto rgb = image::convert_rgb(std::move(*whole));
    const auto size = image::smart_resize(profile.resize_rule, rgb->width(), rgb->height(), profile.image_limits);
    const int w = static_cast<int>(size->width), h = static_cast<int>(size->height);
    ASSERT_EQ(got.units.size(), 1u);
    EXPECT_EQ(got.units[0].h, h / 14);
    EXPECT_EQ(got.units[0].w, w / 14);
    EXPECT_EQ(got.tokens, h / 28 * (w / 28));
    EXPECT_EQ(got.t * got.h * got.w, got.tokens);
    std::vector<bf16> expected(size_t{588} * (h / 14) * (w / 14));
    ASSERT_TRUE(image::make_patches(*rgb, w, h, profile.filter, profile.layout, normaliser, image::kAllSlots,
                                    expected.data(), expected.size())
                    .ok());
    ASSERT_EQ(got.patches->size(), expected.size() * 2);
    EXPECT_EQ(got.units[0].bytes, got.patches->size());
    EXPECT_EQ(std::memcmp(got.patches->data(), expected.data(), got.patches->size()), 0) << names[i];
    keys.insert(got.units[0].key[0]);
  }
  EXPECT_EQ(keys.size(), names.size());
  const MediaStats stats = service->stats();
  EXPECT_EQ(stats.images, 5u);
  EXPECT_GT(stats.decode_ns, 0u);
  EXPECT_GT(stats.prepare_ns, 0u);
}

TEST_F(MediaServiceTest, NoPartsAreNoWork) {
  const auto service = make(options());
  const Results results = get(*service, {});
  ASSERT_TRUE(results.ok());
  EXPECT_TRUE(results->empty());
}

TEST_F(MediaServiceTest, DataUrlsThroughTheRealFetcher) {
  MediaOptions own = options();
  own.fetcher = nullptr;
  const auto service = make(std::move(own));
  const std::string url = "data:image/png;base64," + base64(file_bytes("scene.png"));
  const Results results = get(*service, {image(url)});
  ASSERT_TRUE(results.ok()) << results.error().message;
  EXPECT_GT((*results)[0]->tokens, 0);
  const Results broken = get(*service, {image("data:image/png;base64,@@@@", "messages[3].content[1]")});
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(broken.error().param, "messages[3].content[1]");
}

TEST_F(MediaServiceTest, ErrorsOfTheSpecificationWordForWord) {
  MediaOptions with_cache = options();
  with_cache.processor_cache_gib = 0.1;
  const auto cached = make(std::move(with_cache)), uncached = make(options());
  MediaPart nothing = image("");
  EXPECT_EQ(get(*cached, {nothing}).error().message, "Both image_url and uuid are missing");
  nothing.kind = MediaKind::kVideo;
  EXPECT_EQ(get(*cached, {nothing}).error().message, "Both video_url and uuid are missing");
  MediaPart named = image("");
  named.uuid = "a";
  EXPECT_EQ(get(*uncached, {named}).error().message, "Missing items cannot be retrieved without processor cache.");
  // Numbers count the missing items alone.
  EXPECT_EQ(get(*cached, {image("scene.png"), named}).error().message, "Missing item 0 not found in processor cache");
  MediaPart first = image("scene.png");
  first.uuid = "a";
  ASSERT_TRUE(get(*cached, {first}).ok());
  MediaPart other = named;
  other.uuid = "b";
  const Results missing = get(*cached, {named, image("cmyk.jpg"), other});
  EXPECT_EQ(missing.error().message, "Missing item 1 not found in processor cache");
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(MediaServiceTest, DamagedPicturesNameTheirPartAndDisturbNobody) {
  const auto service = make(options());
  const Results bad =
      get(*service, {image("scene.png"), image("hostile/jpeg_signature_only.jpg", "messages[2].content[5]")});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bad.error().param, "messages[2].content[5]");
  EXPECT_THAT(bad.error().message, StartsWith("messages[2].content[5]: the picture"));
  const Results unreachable = get(*service, {image("missing", "messages[0].content[9]")});
  EXPECT_EQ(unreachable.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(unreachable.error().message, "messages[0].content[9]: the host does not answer");
  EXPECT_TRUE(get(*service, {image("scene.png")}).ok());
  EXPECT_EQ(service->stats().failed, 2u);
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
}

TEST_F(MediaServiceTest, EveryHostileFileEndsInAnAnswer) {
  const auto service = make(options());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(own_data("media/hostile"))) {
    names.push_back("hostile/" + entry.path().filename().string());
  }
  ASSERT_GE(names.size(), 60u);
  std::vector<std::future<Results>> answers;
  for (const auto& name : names) answers.push_back(begin(*service, {image(name, name)}));
  auto healthy = begin(*service, {image("scene.png")});
  int refused = 0;
  for (size_t i = 0; i < names.size(); i++) {
    const Results results = answers[i].get();
    if (results.ok()) continue;
    refused++;
    EXPECT_EQ(results.error().param, names[i]);
    EXPECT_EQ(results.error().code, ErrorCode::kInvalidArgument) << results.error().message;
  }
  EXPECT_GT(refused, 40);
  EXPECT_TRUE(healthy.get().ok());
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
}

TEST_F(MediaServiceTest, KwargsOfAnItemWithinTheServersCeilings) {
  const auto service = make(options());
  const auto with = [](const char* kwargs) {
    MediaPart part = image("scene.png", "p");
    part.kwargs = json::parse(kwargs)->as_object();
    return part;
  };
  const Results plain = get(*service, {image("scene.png")}), large = get(*service, {with(R"({"min_pixels": 50000})")});
  ASSERT_TRUE(plain.ok() && large.ok());
  EXPECT_GT((*large)[0]->tokens, (*plain)[0]->tokens);
  EXPECT_NE((*large)[0]->units[0].key[0], (*plain)[0]->units[0].key[0]);
  for (const char* wrong : {R"({"max_pixels": 4842769})", R"({"max_pixels": 0})", R"({"max_pixels": "9"})",
                            R"({"min_pixels": 5000000})", R"({"min_pixels": 9000, "max_pixels": 8000})"}) {
    const Results results = get(*service, {with(wrong)});
    ASSERT_FALSE(results.ok()) << wrong;
    EXPECT_EQ(results.error().param, "p");
    EXPECT_THAT(results.error().message, HasSubstr("pixels must")) << wrong;
  }
}

TEST_F(MediaServiceTest, TokensAreCountedBeforeAnythingIsDecoded) {
  MediaOptions limited = options();
  const Results one = get(*make(options()), {image("scene.png")});
  limited.max_request_tokens = 2 * (*one)[0]->tokens;
  const auto service = make(std::move(limited));
  EXPECT_TRUE(get(*service, {image("scene.png"), image("scene.png")}).ok());
  const uint64_t decoded = service->stats().decode_ns;
  const Results over = get(*service, {image("scene.png"), image("scene.png"), image("scene.png")});
  ASSERT_FALSE(over.ok());
  EXPECT_THAT(over.error().message, HasSubstr("more than the limit of"));
  EXPECT_EQ(service->stats().decode_ns, decoded);
}

TEST_F(MediaServiceTest, ARequestLargerThanItsBudgetIsRefused) {
  MediaOptions limited = options();
  limited.request_bytes = 20'000;
  const Results results = get(*make(std::move(limited)), {image("scene.png")});
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.error().code, ErrorCode::kInvalidArgument);
  MediaOptions few_bytes = options();
  few_bytes.request_file_bytes = 1000;
  few_bytes.total_file_bytes = 1000;
  const Results files = get(*make(std::move(few_bytes)), {image("scene.png")});
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(MediaServiceTest, PatchesOutliveTheService) {
  auto service = make(options());
  Results results = get(*service, {image("scene.png")});
  service.reset();
  const auto patches = (*results)[0]->patches;
  results = make_error(ErrorCode::kInternal, "");
  EXPECT_GT(patches->size(), 0u);
}

TEST_F(MediaServiceTest, KeysAreNotPredictable) {
  const Results a = get(*make(options()), {image("scene.png")}), b = get(*make(options()), {image("scene.png")});
  EXPECT_NE((*a)[0]->units[0].key[0], (*b)[0]->units[0].key[0]);  // another process, another key
}

// Every picture of the table of Pillow's results, as the service prepares it by default: at a size that its rule leaves
// alone, the resized picture's hash is that of a resize of Pillow's.
TEST_F(MediaServiceTest, PicturesLieOnWhiteAndStandUpright) {
  MediaOptions own = options();
  own.want_sha256 = true;
  const auto service = make(std::move(own));
  for (const char* name : {"turn6.jpg", "turn6_xmp.jpg", "turn5_clear.png", "turn5_opaque.png", "turn6_la.png",
                           "ink_clear.png", "turn7_clear.webp", "turn8.tif", "turn6_alpha.tif", "gray_alpha.tif"}) {
    SCOPED_TRACE(name);
    const auto bytes = file_bytes(name);
    const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    auto whole = image::compose_upright(std::move(*image::decode_image(file, {})), image::sniff_format(file),
                                        image::exif_orientation(file.data(), file.size()));
    const auto rgb = image::convert_rgb(std::move(*whole));
    const VisionProfile& p = service_profile();
    const auto size = image::smart_resize(p.resize_rule, rgb->width(), rgb->height(), p.image_limits);
    const auto resized =
        image::resize_rgb(*rgb, static_cast<int>(size->width), static_cast<int>(size->height), p.filter);
    const Results got = get(*service, {image(name)});
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ((*got)[0]->resized_sha256, sha256_hex(resized->data(), resized->size_bytes()));
  }
}

TEST_F(MediaServiceTest, ExifTurningIsAChoice) {
  MediaOptions turned = options();
  turned.want_sha256 = true;
  MediaOptions plain = options();
  plain.apply_exif = false;
  plain.want_sha256 = true;
  const auto with = make(std::move(turned)), without = make(std::move(plain));
  const Results a = get(*with, {image("turn6.jpg")}), b = get(*without, {image("turn6.jpg")});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE((*a)[0]->resized_sha256, (*b)[0]->resized_sha256);
  EXPECT_EQ((*a)[0]->resized_sha256.size(), 64u);
}

TEST_F(MediaServiceTest, ModelsWithoutVideosSaySo) {
  MediaOptions paddle = options();
  paddle.profile = must_read_profile(kPaddleConfig, "{}");
  MediaPart part = image("a.mp4");
  part.kind = MediaKind::kVideo;
  EXPECT_EQ(get(*make(std::move(paddle)), {part}).error().message, "This model does not take videos");
}

TEST_F(MediaServiceTest, ContradictoryOptionsAreRefused) {
  MediaOptions bad = options();
  bad.request_bytes = bad.total_bytes + 1;
  EXPECT_FALSE(make_media_service(std::move(bad)).ok());
  MediaOptions cache = options();
  cache.processor_cache_gib = -2;
  EXPECT_FALSE(make_media_service(std::move(cache)).ok());
}

}  // namespace
}  // namespace tern::content
