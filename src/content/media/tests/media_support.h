// Shared by the tests of media: model folders made on the spot, a tokenizer with picture tokens, prepared items.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "content/media/media.h"
#include "content/media/profile/vision_profile.h"
#include "content/tests/test_data.h"

namespace tern::content {

inline constexpr int32_t kImagePlaceholder = 906, kImageStart = 907, kImageEnd = 908, kVideoStart = 909,
                         kVideoEnd = 910, kImagePad = 911, kVideoPad = 912, kVisionStart = 913, kVisionEnd = 914;

// The byte-level tokenizer of tests/data with the picture tokens of all models.
inline std::unique_ptr<Tokenizer> picture_tokenizer() {
  json::Value file = load_json(own_data("tokenizers/byte_level/tokenizer.json"));
  json::Array& added = file.as_object()["added_tokens"].as_array();
  int32_t id = kImagePlaceholder;
  for (const char* text : {"<|IMAGE_PLACEHOLDER|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO_START|>",
                           "<|VIDEO_END|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"}) {
    json::Value token = added[0];
    token.as_object()["id"] = id++;
    token.as_object()["content"] = text;
    added.push_back(token);
  }
  const TempDir dir;
  dir.write("tokenizer.json", json::dump(file));
  auto tokenizer = Tokenizer::load(dir.path());
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

inline const char* kErnieConfig = R"({"architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
  "im_patch_id": 100295, "image_start_token_id": 101304, "image_end_token_id": 101305,
  "video_start_token_id": 101306, "video_end_token_id": 101307, "vision_config": {"patch_size": 14}})";
inline const char* kPaddleConfig = R"({"architectures": ["PaddleOCRVLForConditionalGeneration"],
  "image_token_id": 100295, "video_token_id": 101307, "vision_start_token_id": 101305, "vision_end_token_id": 101306,
  "vision_config": {"patch_size": 14, "spatial_merge_size": 2}})";
inline const char* kQwenConfig = R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"],
  "image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
  "vision_config": {"patch_size": 14, "tokens_per_second": 2}})";

inline Expected<std::optional<VisionProfile>> read_profile(const std::string& config, const std::string& preprocessor,
                                                           const std::string& kwargs = "{}",
                                                           const Tokenizer* tokenizer = nullptr,
                                                           bool hugging_face = false) {
  const TempDir dir;
  dir.write("config.json", config);
  if (!preprocessor.empty()) dir.write("preprocessor_config.json", preprocessor);
  ProfileOptions options;
  options.folder = dir.path();
  auto parsed = json::parse(kwargs);
  EXPECT_TRUE(parsed.ok()) << kwargs;
  if (parsed.ok()) options.mm_processor_kwargs = parsed->as_object();
  options.hugging_face = hugging_face;
  return read_vision_profile(options, tokenizer);
}

inline VisionProfile must_read_profile(const std::string& config, const std::string& preprocessor,
                                       const std::string& kwargs = "{}", const Tokenizer* tokenizer = nullptr) {
  auto profile = read_profile(config, preprocessor, kwargs, tokenizer);
  EXPECT_TRUE(profile.ok()) << (profile.ok() ? "" : profile.error().message);
  return profile.ok() && profile->has_value() ? **profile : VisionProfile();
}

// An item of t x h x w cells, without patches. Units of one cell of time.
inline PreparedMediaPtr item(MediaKind kind, int t, int h, int w) {
  auto media = std::make_shared<PreparedMedia>();
  media->kind = kind;
  media->t = t;
  media->h = h;
  media->w = w;
  media->tokens = t * h * w;
  for (int i = 0; i < t; i++) media->units.push_back({.t = 1, .h = 2 * h, .w = 2 * w, .tokens = h * w});
  return media;
}

}  // namespace tern::content
