// What a model folder says about pictures: size rules, constants, patch order, placeholders, positions. Values only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "content/text/tokenizer.h"
#include "image/patches.h"
#include "image/positions.h"
#include "image/resize.h"
#include "image/smart_resize.h"
#include "json/json.h"
#include "video/video.h"

namespace tern::content {

// How one kind of medium stands in the prompt: the template writes `text` (or the id of `placeholder` directly); it
// becomes `start`, the placeholder ids, `end`, where the template has not written the markers itself.
struct Placeholder {
  std::vector<std::string> texts;  // every spelling a template may write
  int32_t id = -1;                 // the id that is repeated
  int32_t start = -1, end = -1;    // markers; -1: none
};

struct VisionProfile {
  std::string architecture;
  image::ResizeRule resize_rule = image::ResizeRule::kErnieVl;
  image::ResizeLimits image_limits, video_limits;
  // What a request may ask for of a picture, where that is more than image_limits.max_pixels.
  int64_t most_image_pixels = 0;
  image::Filter filter = image::Filter::kBicubic;
  image::NormaliseRule normalise = image::NormaliseRule::kFloat;
  double rescale = 1.0 / 255.0;
  std::array<float, 3> mean{}, std{};
  image::PatchLayout layout;
  bool bf16_patches = true;  // the tower's activation type
  image::AdvanceRule advance = image::AdvanceRule::kMaxAll;
  bool takes_video = false;
  int frames_per_unit = 2;         // frames of a video that the tower encodes together
  double tokens_per_second = 0.0;  // Qwen2.5-VL; 0: t moves by one
  video::SamplingRule sampling;
  Placeholder image, video;
};

struct ProfileOptions {
  std::string folder;                // model folder: config.json, preprocessor_config.json
  json::Object mm_processor_kwargs;  // --mm-processor-kwargs; wrongly typed: a warning, and all of it is ignored
  bool bf16 = true;
  // The rules of transformers instead of FastDeploy's where they differ (README.md): for comparisons.
  bool hugging_face = false;
};

// Nothing for an architecture without pictures. Ids are resolved by token text (models-ernie-paddleocr.md, trap 7),
// from config.json where the tokenizer does not know them.
Expected<std::optional<VisionProfile>> read_vision_profile(const ProfileOptions& options, const Tokenizer* tokenizer);

// The most placeholder tokens that one image, and one unit of a video, can have under the profile's limits (0 where the
// model takes no video); for the size of the encoder's memory.
int64_t max_image_tokens(const VisionProfile& profile);
int64_t max_video_unit_tokens(const VisionProfile& profile);
// Patches (rows of the tower's input) of the same.
int64_t max_image_patches(const VisionProfile& profile);
int64_t max_video_unit_patches(const VisionProfile& profile);

}  // namespace tern::content
