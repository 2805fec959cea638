#include "app/start/vision_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace tern::app {

Expected<std::optional<content::VisionProfile>> read_profile(const Settings& settings,
                                                             const content::Tokenizer* tokenizer) {
  if (!settings.media.wanted) return std::optional<content::VisionProfile>();
  content::ProfileOptions options;
  options.folder = settings.load.path;
  options.mm_processor_kwargs = settings.media.processor_kwargs;
  options.bf16 = settings.load.activation == DType::kBF16;
  return content::read_vision_profile(options, tokenizer);
}

Expected<VisionParts> load_media(const Settings& settings, const content::Tokenizer* tokenizer) {
  VisionParts parts;
  TERN_ASSIGN_OR_RETURN(parts.profile, read_profile(settings, tokenizer));
  if (!parts.profile) return parts;
  content::MediaOptions options = settings.media.options;
  options.profile = *parts.profile;
  if (parts.profile->takes_video && options.video_helper.empty()) {
    TERN_WARN("tern-video-decoder is not beside the program: videos are answered with status 400 (--video-decoder)");
  }
  TERN_ASSIGN_OR_RETURN(parts.media, content::make_media_service(std::move(options)));
  return parts;
}

Expected<VisionParts> load_vision(const Settings& settings, device::Device& device,
                                  const content::Tokenizer* tokenizer) {
  TERN_ASSIGN_OR_RETURN(VisionParts parts, load_media(settings, tokenizer));
  if (!parts.profile) return parts;
  TERN_ASSIGN_OR_RETURN(parts.tower, vision::load_tower(settings.load, device));
  if (parts.tower == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} has pictures, but no tower for them is built in; --deploy-modality text serves "
                                  "its text side",
                                  settings.model.architecture));
  }
  const auto& info = parts.tower->info();
  TERN_LOG(LogChannel::kWorker, LogLevel::kInfo,
           "vision tower: {} parameters, {:.3f} GB of weights; pictures of up to "
           "{} tokens",
           info.parameters, static_cast<double>(info.weight_bytes) / 1e9, content::max_image_tokens(*parts.profile));
  return parts;
}

engine::VisionConfig vision_config(const Settings& settings, const content::VisionProfile& profile, int merge) {
  engine::VisionConfig config;
  content::VisionProfile most = profile;  // what requests may ask for
  most.image_limits.max_pixels = std::max(profile.image_limits.max_pixels, profile.most_image_pixels);
  // A larger item could not stand in a prompt: serve refuses it before it is decoded.
  const int64_t context = settings.serve.max_model_len;
  const int64_t tokens =
      std::min(std::max(content::max_image_tokens(most), content::max_video_unit_tokens(profile)), context);
  const int64_t patches = std::max(content::max_image_patches(most), content::max_video_unit_patches(profile));
  const int64_t frames = profile.takes_video ? std::max(profile.frames_per_unit, 1) : 1;
  config.max_item_tokens = static_cast<int>(tokens);
  config.max_item_patches = std::min(patches, context * merge * merge * frames);
  config.encoder_cache_tokens = settings.media.encoder_cache_tokens;
  return config;
}

json::Object describe_profile(const content::VisionProfile& profile) {
  json::Object o{{"videos", profile.takes_video},
                 {"max_image_tokens", content::max_image_tokens(profile)},
                 {"max_image_patches", content::max_image_patches(profile)},
                 {"min_image_pixels", profile.image_limits.min_pixels},
                 {"max_image_pixels", profile.image_limits.max_pixels},
                 {"image_token_id", profile.image.id}};
  if (profile.takes_video) o["max_video_unit_tokens"] = content::max_video_unit_tokens(profile);
  return o;
}

}  // namespace tern::app
