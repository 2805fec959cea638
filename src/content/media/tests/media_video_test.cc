#include "content/media/tests/media_service_support.h"

namespace tern::content {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Frames that say their number; the reader sees the rules that the request asked for.
class MediaServiceVideoTest : public MediaServiceTest {
 protected:
  MediaOptions video_options(const char* config = kErnieConfig) {
    MediaOptions own = options();
    own.profile = must_read_profile(config, "{}", R"({"video_min_pixels": 3136, "video_max_pixels": 50176})");
    own.video_reader = [this](std::span<const std::byte>, const video::VideoOptions& o) -> Expected<video::Video> {
      asked_ = o;
      video::Video video;
      video.facts = {.frames = 10, .average_fps = 10, .duration = 1, .width = 64, .height = 48};
      for (int i = 0; i < frames_; i++) {
        auto frame = image::Image::make(image::Mode::kRGB, 64, 48);
        std::memset(frame->data(), 10 * i, frame->size_bytes());
        video.frames.push_back(std::move(*frame));
        video.seconds.push_back(i * 0.1);
      }
      return video;
    };
    return own;
  }
  static MediaPart clip(const char* kwargs = "{}") {
    MediaPart part = image("scene.png", "v");
    part.kind = MediaKind::kVideo;
    part.kwargs = json::parse(kwargs)->as_object();
    return part;
  }
  int frames_ = 4;
  video::VideoOptions asked_;
};

TEST_F(MediaServiceVideoTest, UnitsOfTwoFramesWithTheirOwnKeys) {
  const auto service = make(video_options());
  const Results results = get(*service, {clip()});
  ASSERT_TRUE(results.ok()) << results.error().message;
  const PreparedMedia& video = *(*results)[0];
  EXPECT_EQ(video.kind, MediaKind::kVideo);
  ASSERT_EQ(video.units.size(), 2u);
  EXPECT_EQ(video.t, 2);
  EXPECT_EQ(video.t * video.h * video.w, video.tokens);
  size_t offset = 0;
  int32_t tokens = 0;
  for (const MediaUnit& unit : video.units) {
    EXPECT_EQ(unit.t, 2);
    EXPECT_EQ(unit.offset, offset);
    EXPECT_EQ(unit.bytes, size_t{2} * 588 * unit.t * unit.h * unit.w);
    EXPECT_EQ(unit.tokens, unit.t * unit.h * unit.w / 8);
    offset += unit.bytes;
    tokens += unit.tokens;
  }
  EXPECT_EQ(offset, video.patches->size());
  EXPECT_EQ(tokens, video.tokens);
  EXPECT_NE(video.units[0].key[0], video.units[1].key[0]);
  EXPECT_EQ(service->stats().videos, 1u);
}

TEST_F(MediaServiceVideoTest, QwenPutsTwoFramesIntoOnePatch) {
  const auto service = make(video_options(kQwenConfig));
  const Results results = get(*service, {clip(R"({"fps": 1})")});
  ASSERT_TRUE(results.ok()) << results.error().message;
  const PreparedMedia& video = *(*results)[0];
  ASSERT_EQ(video.units.size(), 2u);
  EXPECT_EQ(video.units[0].t, 1);
  EXPECT_EQ(video.units[0].bytes, size_t{2} * 1176 * video.units[0].h * video.units[0].w);
  EXPECT_EQ(video.t_step, 4.0);  // two seconds at two tokens each
  // Within a patch row the first frame's values stand before the second's.
  const auto* values = reinterpret_cast<const bf16*>(video.patches->data());
  EXPECT_NE(values[0].bits, values[196].bits);
}

TEST_F(MediaServiceVideoTest, KwargsReachTheReaderWithinTheCeilings) {
  MediaOptions own = video_options();
  own.video.max_frames = 100;
  const auto service = make(std::move(own));
  ASSERT_TRUE(
      get(*service, {clip(R"({"fps": 0.5, "min_frames": 2, "max_frames": 40, "frames_sample": "middle"})")}).ok());
  EXPECT_EQ(asked_.sampling.fps, 0.5);
  EXPECT_EQ(asked_.sampling.min_frames, 2);
  EXPECT_EQ(asked_.sampling.max_frames, 40);
  EXPECT_EQ(asked_.sampling.choice, video::FrameChoice::kMiddle);
  ASSERT_TRUE(get(*service, {clip(R"({"fps": -1, "target_frames": 8})")}).ok());
  EXPECT_EQ(asked_.sampling.target_frames, 8);
  ASSERT_TRUE(get(*service, {clip()}).ok());
  EXPECT_EQ(asked_.sampling.max_frames, 100);  // the default of 180 is above the ceiling
  for (const char* wrong : {R"({"fps": 0})", R"({"fps": "2"})", R"({"fps": 1e300})", R"({"max_frames": 101})",
                            R"({"max_frames": 0})", R"({"min_frames": 50, "max_frames": 40})",
                            R"({"target_frames": 101})", R"({"frames_sample": "last"})", R"({"frames_sample": 1})"}) {
    EXPECT_FALSE(get(*service, {clip(wrong)}).ok()) << wrong;
  }
}

TEST_F(MediaServiceVideoTest, TooManyTokensAreAnErrorAndNothingStaysBehind) {
  MediaOptions own = video_options();
  own.max_request_tokens = 5;
  const auto service = make(std::move(own));
  const Results results = get(*service, {clip()});
  ASSERT_FALSE(results.ok());
  EXPECT_THAT(results.error().message, HasSubstr("more than the limit of 5"));
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
}

TEST_F(MediaServiceVideoTest, AReaderThatBreaksItsPromiseIsAnError) {
  frames_ = 3;
  EXPECT_EQ(get(*make(video_options()), {clip()}).error().code, ErrorCode::kInternal);
  frames_ = 0;
  EXPECT_EQ(get(*make(video_options()), {clip()}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(MediaServiceVideoTest, TheSameUploadIsNotReadAgain) {
  MediaOptions own = video_options();
  own.processor_cache_gib = 0.1;
  const auto service = make(std::move(own));
  const Results first = get(*service, {clip()}), again = get(*service, {clip()});
  EXPECT_EQ((*first)[0], (*again)[0]);
  const Results other = get(*service, {clip(R"({"fps": 1})")});
  EXPECT_NE((*first)[0], (*other)[0]);
}

// The decoder lies beside the test program when it was built.
TEST_F(MediaServiceVideoTest, RealVideosThroughTheDecodersProcess) {
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  if (!std::filesystem::exists(video::find_helper(folder))) GTEST_SKIP() << "tern-video-decoder is not built";
  MediaOptions own = options();
  own.fetcher = [](std::string_view url, const fetch::FetchPolicy&) -> Expected<std::vector<std::byte>> {
    return file_bytes("../video/" + std::string(url));
  };
  own.video_helper = video::find_helper(folder);
  own.font_file = video::find_font(folder);
  const auto service = make(std::move(own));
  const auto clip = [](const char* name, const char* kwargs) {
    MediaPart part = image(name, "v");
    part.kind = MediaKind::kVideo;
    part.kwargs = json::parse(kwargs)->as_object();
    return part;
  };
  const Results results =
      get(*service, {clip("h264.mp4", R"({"min_frames": 3, "max_frames": 3})"), image("../media/scene.png"),
                     clip("vp9.webm", R"({"fps": -1, "target_frames": 4})")});
  ASSERT_TRUE(results.ok()) << results.error().message;
  EXPECT_EQ((*results)[0]->units.size(), 2u);  // three frames and a copy of the last
  EXPECT_EQ((*results)[1]->kind, MediaKind::kImage);
  EXPECT_EQ((*results)[2]->units.size(), 2u);
  EXPECT_EQ((*results)[2]->t * (*results)[2]->h * (*results)[2]->w, (*results)[2]->tokens);
  for (const char* bad : {"empty.mp4", "../media/scene.png"}) {
    const Results broken = get(*service, {clip(bad, "{}")});
    ASSERT_FALSE(broken.ok()) << bad;
    EXPECT_EQ(broken.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(broken.error().message, StartsWith("v: ")) << bad;
  }
  const Results both = get(*service, {clip("h264.mp4", R"({"target_frames": 4})")});
  EXPECT_FALSE(both.ok());  // together with fps
}

}  // namespace
}  // namespace tern::content
