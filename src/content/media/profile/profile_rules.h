// Inside the part: what is known of each architecture with pictures, and the files and flags that change it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "content/media/profile/vision_profile.h"
#include "json/json.h"

namespace tern::content {

// Where a special token's id comes from: the tokenizer, by text; else the first of these keys that config.json has.
struct TokenSource {
  std::string text;
  std::vector<std::string> keys;
};

struct ArchitectureRules {
  std::vector<std::string> architectures, model_types;
  VisionProfile defaults;       // without ids
  bool pixel_limits_from_file;  // false: FastDeploy's own limits hold whatever preprocessor_config.json says
  bool video_limits_from_file;  // frames of videos have the limits of pictures
  TokenSource image, video;     // placeholders
  TokenSource image_start, image_end, video_start, video_end;
};

ArchitectureRules ernie_vl_rules();
ArchitectureRules paddleocr_vl_rules();
ArchitectureRules qwen2_5_vl_rules();

// What transformers does instead where that differs.
void use_hugging_face_rules(ArchitectureRules* rules);

// Numbers of preprocessor_config.json (or of the image_processor object of processor_config.json) into the profile.
// kInvalidArgument with the key for wrong types and impossible values, kUnsupported for steps that are switched off.
Status apply_preprocessor_config(const json::Object& config, const ArchitectureRules& rules, VisionProfile* profile);

// --mm-processor-kwargs. A value of the wrong type: a warning, and all of them are ignored; an unknown key: a warning.
// kInvalidArgument for values of the right type that cannot be.
Status apply_processor_kwargs(const json::Object& kwargs, VisionProfile* profile);

// "leading", "middle", "rand"; false for another name.
bool parse_frame_choice(std::string_view name, video::FrameChoice* choice);

// kInvalidArgument where the numbers contradict each other.
Status check_profile(const VisionProfile& profile);

}  // namespace tern::content
