#include "content/media/profile/vision_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "content/media/profile/item_rules.h"
#include "content/media/tests/media_support.h"

namespace tern::content {
namespace {

using testing::HasSubstr;

TEST(VisionProfile, ArchitecturesWithoutPicturesHaveNone) {
  const auto profile = read_profile(R"({"architectures": ["LlamaForCausalLM"]})", "");
  ASSERT_TRUE(profile.ok());
  EXPECT_FALSE(profile->has_value());
  EXPECT_FALSE(read_profile("{}", "")->has_value());
  // The list decides where there is one.
  EXPECT_FALSE(read_profile(R"({"architectures": ["Other"], "model_type": "paddleocr_vl"})", "")->has_value());
  EXPECT_TRUE(read_profile(R"({"model_type": "paddleocr_vl", "image_token_id": 5})", "")->has_value());
}

TEST(VisionProfile, ErnieFollowsFastDeploy) {
  const VisionProfile p = must_read_profile(kErnieConfig, R"({"min_pixels": 1000, "max_pixels": 2000000})");
  EXPECT_EQ(p.resize_rule, image::ResizeRule::kErnieVl);
  EXPECT_EQ(p.image_limits.min_pixels, 3136);
  EXPECT_EQ(p.image_limits.max_pixels, 4842768);  // FastDeploy's, whatever the file says
  EXPECT_EQ(p.video_limits.min_pixels, 234416);
  EXPECT_EQ(p.video_limits.max_pixels, 937664);
  EXPECT_EQ(p.image_limits.factor, 28);
  EXPECT_EQ(p.normalise, image::NormaliseRule::kFloat);
  EXPECT_EQ(p.mean, image::kClipMean);
  EXPECT_EQ(p.layout.order, image::PatchOrder::kBlocks);
  EXPECT_EQ(p.advance, image::AdvanceRule::kMaxAll);
  EXPECT_TRUE(p.takes_video);
  EXPECT_EQ(p.sampling.fps, 2);
  EXPECT_EQ(p.sampling.min_frames, 16);
  EXPECT_EQ(p.sampling.max_frames, 180);
  EXPECT_EQ(p.image.id, 100295);
  EXPECT_EQ(p.image.start, 101304);
  EXPECT_EQ(p.image.end, 101305);
  EXPECT_EQ(p.video.id, 100295);  // one id for both
  EXPECT_EQ(p.video.start, 101306);
  EXPECT_EQ(max_image_tokens(p), 6177);
  EXPECT_EQ(max_image_patches(p), 6177 * 4);
  EXPECT_EQ(max_video_unit_tokens(p), 1196);
  EXPECT_EQ(max_video_unit_patches(p), 1196 * 8);
}

TEST(VisionProfile, PaddleTakesItsNumbersFromTheFile) {
  const VisionProfile p =
      must_read_profile(kPaddleConfig, R"({"min_pixels": 147384, "max_pixels": 2822400, "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5], "resample": 3, "rescale_factor": 0.00392156862745098, "patch_size": 14,
        "merge_size": 2, "temporal_patch_size": 1, "do_resize": true, "image_processor_type": "x"})");
  EXPECT_EQ(p.resize_rule, image::ResizeRule::kPaddleOcrVl);
  EXPECT_EQ(p.image_limits.min_pixels, 147384);
  EXPECT_EQ(p.image_limits.max_pixels, 2822400);
  EXPECT_EQ(p.mean, (std::array<float, 3>{0.5, 0.5, 0.5}));
  EXPECT_EQ(p.std, (std::array<float, 3>{0.5, 0.5, 0.5}));
  EXPECT_EQ(p.layout.order, image::PatchOrder::kRaster);
  EXPECT_FALSE(p.takes_video);
  EXPECT_EQ(p.image.start, 101305);
  EXPECT_EQ(p.image.end, 101306);
  EXPECT_EQ(p.video.id, -1);
  EXPECT_EQ(max_image_tokens(p), 3600);
  EXPECT_EQ(max_video_unit_tokens(p), 0);
  const VisionProfile bare = must_read_profile(kPaddleConfig, "");
  EXPECT_EQ(bare.image_limits.min_pixels, 101920);
  EXPECT_EQ(bare.image_limits.max_pixels, 1003520);
  EXPECT_EQ(bare.mean, image::kClipMean);
}

TEST(VisionProfile, QwenHasTwoFramesPerPatch) {
  const VisionProfile p =
      must_read_profile(kQwenConfig, R"({"min_pixels": 3136, "max_pixels": 12845056, "temporal_patch_size": 2})");
  EXPECT_EQ(p.layout.temporal, 2);
  EXPECT_EQ(p.tokens_per_second, 2);
  EXPECT_TRUE(p.sampling.qwen);
  EXPECT_EQ(p.sampling.min_frames, 4);
  EXPECT_EQ(p.sampling.max_frames, 768);
  EXPECT_EQ(p.image.id, 151655);
  EXPECT_EQ(p.video.id, 151656);
  EXPECT_EQ(p.video.start, 151652);
  EXPECT_EQ(p.video_limits.max_pixels, 12845056);
  EXPECT_EQ(max_video_unit_patches(p), 12845056 / 784 * 4);
}

TEST(VisionProfile, LimitsInEverySpelling) {
  struct Case {
    const char* file;
    int64_t low, high;
  };
  for (const Case& c :
       {Case{R"({"min_pixels": 5000, "max_pixels": 70000})", 5000, 70000},
        Case{R"({"size": {"shortest_edge": 5000, "longest_edge": 70000}})", 5000, 70000},
        Case{R"({"size": {"min_pixels": 5000, "max_pixels": 70000}})", 5000, 70000},
        Case{R"({"min_pixels": 6000, "size": {"shortest_edge": 5000, "longest_edge": 70000}})", 6000, 70000},
        Case{R"({"min_pixels": null, "max_pixels": 70000, "size": null})", 101920 /*see below*/, 0}}) {
    const auto p = read_profile(kPaddleConfig, c.file);
    if (c.high == 0) {  // the default minimum is above this maximum
      ASSERT_FALSE(p.ok());
      EXPECT_THAT(p.error().message, HasSubstr("contradict"));
      continue;
    }
    ASSERT_TRUE(p.ok()) << c.file << p.error().message;
    EXPECT_EQ((*p)->image_limits.min_pixels, c.low) << c.file;
    EXPECT_EQ((*p)->image_limits.max_pixels, c.high) << c.file;
  }
}

TEST(VisionProfile, NestedProcessorConfigOfNewerExports) {
  const TempDir dir;
  dir.write("config.json", kPaddleConfig);
  dir.write("processor_config.json", R"({"image_processor": {"image_mean": [0.5, 0.5, 0.5]}, "processor_class": "x"})");
  ProfileOptions options;
  options.folder = dir.path();
  const auto p = read_vision_profile(options, nullptr);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ((*p)->mean[1], 0.5f);
}

TEST(VisionProfile, MalformedFilesAreNamed) {
  struct Case {
    const char* file;
    const char* says;
  };
  for (const Case& c :
       {Case{"[]", "preprocessor_config.json must hold an object"},
        Case{"{", ""},
        Case{R"({"min_pixels": "many"})", "min_pixels must be an integer"},
        Case{R"({"min_pixels": 0})", "min_pixels must be from 1"},
        Case{R"({"max_pixels": 99999999999})", "max_pixels must be from 1"},
        Case{R"({"max_pixels": 3.5})", "max_pixels must be an integer"},
        Case{R"({"min_pixels": 200000, "max_pixels": 150000})", "contradict"},
        Case{R"({"min_pixels": 1, "max_pixels": 783})", "less than one token"},
        Case{R"({"image_mean": [0.5, 0.5]})", "image_mean must be three numbers"},
        Case{R"({"image_mean": [0.5, "x", 0.5]})", "image_mean must be three numbers"},
        Case{R"({"image_mean": [1e300, 0, 0]})", "finite"},
        Case{R"({"image_std": [0.5, 0.0, 0.5]})", "above 0"},
        Case{R"({"rescale_factor": 0})", "rescale_factor must be above 0"},
        Case{R"({"rescale_factor": "1/255"})", "rescale_factor must be a number"},
        Case{R"({"resample": 0})", "resample"},
        Case{R"({"resample": 9})", "resample"},
        Case{R"({"patch_size": 16})", "patch_size is 16 in preprocessor_config.json and 14 in config.json"},
        Case{R"({"merge_size": 3})", "merge_size must be 2"},
        Case{R"({"temporal_patch_size": 2})", "temporal_patch_size must be 1"},
        Case{R"({"do_resize": false})", "do_resize cannot be false"},
        Case{R"({"do_rescale": 1})", "do_rescale"},
        Case{R"({"size": 7})", "size must be an object"},
        Case{R"({"size": {"height": 224, "width": 224}})", "height and width"}}) {
    const auto p = read_profile(kPaddleConfig, c.file);
    ASSERT_FALSE(p.ok()) << c.file;
    EXPECT_THAT(p.error().message, HasSubstr(c.says)) << c.file;
  }
  EXPECT_FALSE(read_profile("nonsense", "").ok());
  EXPECT_FALSE(read_profile(R"({"model_type": "paddleocr_vl"})", "").ok());  // no placeholder anywhere
  EXPECT_FALSE(read_profile(R"({"model_type": "paddleocr_vl", "image_token_id": -3})", "").ok());
  EXPECT_FALSE(read_profile(R"({"model_type": "paddleocr_vl", "image_token_id": 5, "vision_config": 3})", "").ok());
}

TEST(VisionProfile, IdsComeFromTheTokenizerWhereItKnowsThem) {
  const auto tokenizer = picture_tokenizer();
  const VisionProfile ernie = must_read_profile(kErnieConfig, "", "{}", tokenizer.get());
  EXPECT_EQ(ernie.image.id, kImagePlaceholder);
  EXPECT_EQ(ernie.video.id, kImagePlaceholder);
  EXPECT_EQ(ernie.image.start, kImageStart);
  EXPECT_EQ(ernie.video.end, kVideoEnd);
  const VisionProfile qwen = must_read_profile(kQwenConfig, "", "{}", tokenizer.get());
  EXPECT_EQ(qwen.image.id, kImagePad);
  EXPECT_EQ(qwen.video.id, kVideoPad);
  EXPECT_EQ(qwen.image.end, kVisionEnd);
}

TEST(VisionProfile, HuggingFaceRulesAreAChoice) {
  const auto p = read_profile(R"({"model_type": "ernie4_5_vl_moe", "image_token_id": 5, "video_token_id": 6})",
                              R"({"size": {"shortest_edge": 3136, "longest_edge": 37632}})", "{}", nullptr, true);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ((*p)->resize_rule, image::ResizeRule::kQwenVl);
  EXPECT_EQ((*p)->advance, image::AdvanceRule::kMaxHw);
  EXPECT_EQ((*p)->image_limits.max_pixels, 37632);
  EXPECT_EQ((*p)->video.id, 6);
}

TEST(ProcessorKwargs, ReplaceTheDefaults) {
  const VisionProfile p = must_read_profile(kErnieConfig, "", R"({"image_min_pixels": 10000,
      "image_max_pixels": 12845056, "video_min_pixels": 20000, "video_max_pixels": 500000, "video_fps": -1,
      "video_target_frames": 8, "video_frames_sample": "middle", "video_min_frames": 2, "video_max_frames": 64,
      "spatial_conv_size": 2, "temporal_conv_size": 2})");
  EXPECT_EQ(p.image_limits.min_pixels, 10000);
  EXPECT_EQ(p.image_limits.max_pixels, 12845056);
  EXPECT_EQ(p.video_limits.min_pixels, 20000);
  EXPECT_EQ(p.video_limits.max_pixels, 500000);
  EXPECT_EQ(p.sampling.fps, -1);
  EXPECT_EQ(p.sampling.target_frames, 8);
  EXPECT_EQ(p.sampling.choice, video::FrameChoice::kMiddle);
  EXPECT_EQ(p.sampling.min_frames, 2);
  EXPECT_EQ(p.sampling.max_frames, 64);
  EXPECT_EQ(max_image_tokens(p), 12845056 / 784);
  // The file gives PaddleOCR-VL's limits, the flag goes above it; unknown keys do nothing.
  const VisionProfile paddle =
      must_read_profile(kPaddleConfig, R"({"max_pixels": 2822400})", R"({"max_pixels": 400000, "no_such_key": [1]})");
  EXPECT_EQ(paddle.image_limits.max_pixels, 400000);
}

std::string* warnings = nullptr;

TEST(ProcessorKwargs, AWrongTypeIgnoresThemAll) {
  std::string seen;
  warnings = &seen;
  set_log_sink(
      [](LogChannel, LogLevel, const char*, int, std::string_view text) { warnings->append(text).append("\n"); });
  for (const char* wrong :
       {R"({"image_max_pixels": 12845056, "video_fps": 2.0})", R"({"image_max_pixels": 12845056, "video_fps": "2"})",
        R"({"video_frames_sample": 3, "image_max_pixels": 12845056})",
        R"({"image_max_pixels": 12845056, "image_min_pixels": null})",
        R"({"image_max_pixels": 12845056, "video_max_frames": true})"}) {
    seen.clear();
    const VisionProfile p = must_read_profile(kErnieConfig, "{}", wrong);
    EXPECT_EQ(p.image_limits.max_pixels, 4842768) << wrong;
    EXPECT_THAT(seen, HasSubstr("all of it is ignored: invalid type for")) << wrong;
  }
  set_log_sink(nullptr);
}

TEST(ProcessorKwargs, ImpossibleValuesStopTheStart) {
  for (const char* wrong :
       {R"({"image_min_pixels": 0})", R"({"image_max_pixels": -5})", R"({"image_max_pixels": 100})",
        R"({"image_min_pixels": 9000000})", R"({"video_frames_sample": "last"})", R"({"spatial_conv_size": 4})",
        R"({"temporal_conv_size": 1})", R"({"video_min_frames": 200})", R"({"video_max_frames": 0})"}) {
    const auto p = read_profile(kErnieConfig, "{}", wrong);
    EXPECT_FALSE(p.ok()) << wrong;
  }
}

// A request may ask PaddleOCR-VL for what text spotting wants where the file says less; not where the operator has
// spoken.
TEST(VisionProfile, RequestsMayAskForSpottingsPixels) {
  const std::string file = R"({"min_pixels": 112896, "max_pixels": 1003520})";
  const VisionProfile plain = must_read_profile(kPaddleConfig, file);
  const json::Object spotting = json::parse(R"({"min_pixels": 112896, "max_pixels": 1605632})")->as_object();
  const json::Object more = json::parse(R"({"max_pixels": 1605633})")->as_object();
  EXPECT_EQ(max_image_tokens(plain), 1280);
  EXPECT_EQ(item_rules(plain, MediaKind::kImage, {}, 1)->limits.max_pixels, 1003520);
  EXPECT_EQ(item_rules(plain, MediaKind::kImage, spotting, 1)->limits.max_pixels, 1605632);
  EXPECT_FALSE(item_rules(plain, MediaKind::kImage, more, 1).ok());
  const VisionProfile told = must_read_profile(kPaddleConfig, file, R"({"max_pixels": 1003520})");
  EXPECT_EQ(max_image_tokens(told), 1280);
  EXPECT_FALSE(item_rules(told, MediaKind::kImage, spotting, 1).ok());
}

}  // namespace
}  // namespace tern::content
