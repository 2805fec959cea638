#include "content/media/tests/media_service_support.h"

namespace tern::content {
namespace {

class MediaCacheTest : public MediaServiceTest {};

TEST_F(MediaCacheTest, TheSameUploadIsNotDecodedAgain) {
  MediaOptions with_cache = options();
  with_cache.processor_cache_gib = 0.1;
  const auto service = make(std::move(with_cache));
  const Results first = get(*service, {image("scene.png")});
  ASSERT_TRUE(first.ok());
  const uint64_t decoded = service->stats().decode_ns;
  const Results again = get(*service, {image("scene.png")});
  EXPECT_EQ((*again)[0], (*first)[0]);
  EXPECT_EQ(service->stats().decode_ns, decoded);
  EXPECT_EQ(service->stats().cache_hits, 1u);
  // Prepared in another way it is another entry.
  MediaPart small = image("scene.png");
  small.kwargs["max_pixels"] = 12544;
  const Results other = get(*service, {small});
  EXPECT_NE((*other)[0], (*first)[0]);
  EXPECT_NE((*other)[0]->units[0].key[0], (*first)[0]->units[0].key[0]);
}

TEST_F(MediaCacheTest, TheSamePixelsInAnotherFileShareTheEntry) {
  MediaOptions with_cache = options();
  with_cache.processor_cache_gib = 0.1;
  const auto service = make(std::move(with_cache));
  // Equal pixels in equal modes: the interlaced file and the plain one.
  const Results plain = get(*service, {image("plain.gif")}), interlaced = get(*service, {image("interlaced.gif")});
  ASSERT_TRUE(plain.ok() && interlaced.ok());
  EXPECT_EQ((*plain)[0], (*interlaced)[0]);
  EXPECT_EQ(service->stats().cache_items, 1u);
}

TEST_F(MediaCacheTest, UuidsBelongToTheirOwner) {
  MediaOptions with_cache = options();
  with_cache.processor_cache_gib = 0.1;
  const auto service = make(std::move(with_cache));
  MediaPart given = image("scene.png");
  given.uuid = "picture";
  const Results first = get(*service, {given}, 7);
  MediaPart by_name = image("");
  by_name.uuid = "picture";
  const Results found = get(*service, {by_name}, 7);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ((*found)[0], (*first)[0]);
  EXPECT_FALSE(get(*service, {by_name}, 8).ok());
  MediaPart video = by_name;
  video.kind = MediaKind::kVideo;
  EXPECT_FALSE(get(*service, {video}, 7).ok());
  // A URL beside the uuid is what counts, and what the uuid means from then on.
  given.url = "cmyk.jpg";
  const Results second = get(*service, {given}, 7);
  EXPECT_NE((*second)[0], (*first)[0]);
  EXPECT_EQ((*get(*service, {by_name}, 7))[0], (*second)[0]);
}

TEST_F(MediaCacheTest, CachedPatchesMakeRoomForNewOnes) {
  Results one = get(*make(options()), {image("scene.png")});
  MediaOptions limited = options();
  limited.request_bytes = limited.total_bytes = (*one)[0]->bytes + (size_t{2} << 20);
  limited.processor_cache_gib = 0.002;
  const auto service = make(std::move(limited));
  for (const char* name : {"scene.png", "scene_420.jpg", "scene_422.jpg", "scene_444.jpg", "progressive_444.jpg",
                           "quality1.jpg", "quality100.jpg", "cmyk.jpg", "ycck.jpg", "lossy.webp"}) {
    ASSERT_TRUE(get(*service, {image(name)}).ok()) << name;
  }
}

}  // namespace
}  // namespace tern::content
