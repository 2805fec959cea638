#include "content/media/profile/profile_rules.h"

namespace tern::content {
namespace {

// What the three families share: CLIP's colours, patches of 14 of which 2 x 2 make a token.
ArchitectureRules clip_rules(const char* architecture, image::ResizeRule rule, image::PatchOrder order) {
  ArchitectureRules rules;
  rules.architectures = {architecture};
  VisionProfile& p = rules.defaults;
  p.architecture = architecture;
  p.resize_rule = rule;
  p.normalise = image::NormaliseRule::kDouble;
  p.mean = image::kClipMean;
  p.std = image::kClipStd;
  p.layout = {.patch = 14, .merge = 2, .temporal = 1, .order = order};
  rules.pixel_limits_from_file = true;
  rules.video_limits_from_file = true;
  return rules;
}

}  // namespace

ArchitectureRules ernie_vl_rules() {
  ArchitectureRules rules =
      clip_rules("Ernie4_5_VLMoeForConditionalGeneration", image::ResizeRule::kErnieVl, image::PatchOrder::kBlocks);
  rules.architectures.emplace_back("Ernie4_5_VLForConditionalGeneration");
  rules.architectures.emplace_back("Ernie4_5_VLMoeForProcessRewardModel");
  rules.model_types = {"ernie4_5_vl_moe", "ernie4_5_moe_vl", "ernie4_5_vl"};
  VisionProfile& p = rules.defaults;
  p.image_limits = {.factor = 28, .min_pixels = 4 * 28 * 28, .max_pixels = 6177 * 28 * 28};
  p.video_limits = {.factor = 28, .min_pixels = 299 * 28 * 28, .max_pixels = 1196 * 28 * 28};
  p.normalise = image::NormaliseRule::kFloat;
  p.takes_video = true;
  p.frames_per_unit = 2;
  p.sampling = {.fps = 2, .min_frames = 16, .max_frames = 180};
  // FastDeploy fills pictures and videos with one id; the port of transformers has another for videos.
  p.image.texts = {"<|image@placeholder|>", "<|IMAGE_PLACEHOLDER|>"};
  p.video.texts = {"<|video@placeholder|>", "<|VIDEO_PLACEHOLDER|>"};
  rules.pixel_limits_from_file = false;
  rules.video_limits_from_file = false;
  rules.image = {"<|IMAGE_PLACEHOLDER|>", {"image_token_id", "im_patch_id"}};
  rules.video = rules.image;
  rules.image_start = {"<|IMAGE_START|>", {"image_start_token_id"}};
  rules.image_end = {"<|IMAGE_END|>", {"image_end_token_id"}};
  rules.video_start = {"<|VIDEO_START|>", {"video_start_token_id"}};
  rules.video_end = {"<|VIDEO_END|>", {"video_end_token_id"}};
  return rules;
}

ArchitectureRules paddleocr_vl_rules() {
  ArchitectureRules rules =
      clip_rules("PaddleOCRVLForConditionalGeneration", image::ResizeRule::kPaddleOcrVl, image::PatchOrder::kRaster);
  rules.model_types = {"paddleocr_vl"};
  VisionProfile& p = rules.defaults;
  p.image_limits = {.factor = 28, .min_pixels = 130 * 28 * 28, .max_pixels = 1280 * 28 * 28};
  p.video_limits = p.image_limits;
  p.most_image_pixels = 2048 * 28 * 28;  // what PaddleX asks for when it spots text, whatever the release's file says
  p.takes_video = false;
  p.frames_per_unit = 1;
  p.image.texts = {"<|IMAGE_PLACEHOLDER|>", "<|image@placeholder|>"};
  rules.image = {"<|IMAGE_PLACEHOLDER|>", {"image_token_id", "im_patch_id"}};
  rules.image_start = {"<|IMAGE_START|>", {"vision_start_token_id", "image_start_token_id"}};
  rules.image_end = {"<|IMAGE_END|>", {"vision_end_token_id", "image_end_token_id"}};
  return rules;
}

ArchitectureRules qwen2_5_vl_rules() {
  ArchitectureRules rules =
      clip_rules("Qwen2_5_VLForConditionalGeneration", image::ResizeRule::kQwenVl, image::PatchOrder::kBlocks);
  rules.model_types = {"qwen2_5_vl"};
  VisionProfile& p = rules.defaults;
  p.image_limits = {.factor = 28, .min_pixels = 56 * 56, .max_pixels = 1280 * 28 * 28};
  p.video_limits = p.image_limits;
  p.layout.temporal = 2;
  p.takes_video = true;
  p.frames_per_unit = 2;
  p.tokens_per_second = 2.0;
  p.sampling = {.fps = 2, .min_frames = 4, .max_frames = 768, .qwen = true};
  p.image.texts = {"<|image_pad|>", "<|image@placeholder|>"};
  p.video.texts = {"<|video_pad|>", "<|video@placeholder|>"};
  rules.image = {"<|image_pad|>", {"image_token_id"}};
  rules.video = {"<|video_pad|>", {"video_token_id"}};
  rules.image_start = {"<|vision_start|>", {"vision_start_token_id"}};
  rules.image_end = {"<|vision_end|>", {"vision_end_token_id"}};
  rules.video_start = rules.image_start;
  rules.video_end = rules.image_end;
  return rules;
}

void use_hugging_face_rules(ArchitectureRules* rules) {
  VisionProfile& p = rules->defaults;
  p.advance = image::AdvanceRule::kMaxHw;
  p.image_limits.keep_factor = p.video_limits.keep_factor = true;
  p.normalise = image::NormaliseRule::kDouble;
  rules->pixel_limits_from_file = true;
  if (p.resize_rule == image::ResizeRule::kErnieVl) {
    p.resize_rule = image::ResizeRule::kQwenVl;
    rules->video = {"<|VIDEO_PLACEHOLDER|>", {"video_token_id", "im_patch_id"}};
  }
}

}  // namespace tern::content
