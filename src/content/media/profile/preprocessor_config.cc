// preprocessor_config.json and --mm-processor-kwargs.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/log.h"
#include "content/media/profile/profile_rules.h"

namespace tern::content {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 28;  // of a resized picture: more fits no tower

Error config_error(std::string_view key, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("preprocessor_config.json: {} {}", key, what),
                    std::string(key));
}

// Replaces *value by the integer under the key, where there is one.
Status read_int(const json::Object& config, std::string_view key, int64_t low, int64_t high, int64_t* value) {
  auto found = json::get_int(config, key);
  if (!found.ok()) return config_error(key, "must be an integer");
  if (!found->has_value()) return {};
  if (**found < low || **found > high) return config_error(key, fmt::format("must be from {} to {}", low, high));
  *value = **found;
  return {};
}

Status read_small_int(const json::Object& config, std::string_view key, int high, int* value) {
  int64_t wide = *value;
  TERN_RETURN_IF_ERROR(read_int(config, key, 1, high, &wide));
  *value = static_cast<int>(wide);
  return {};
}

// Three numbers, or one for all channels.
Status read_channels(const json::Object& config, std::string_view key, bool divisor, std::array<float, 3>* values) {
  const json::Value* found = json::find(config, key);
  if (found == nullptr) return {};
  std::array<double, 3> read{};
  if (found->is_number()) {
    read.fill(found->to_number<double>());
  } else {
    const auto* list = found->if_array();
    if (list == nullptr || list->size() != 3) return config_error(key, "must be three numbers");
    for (size_t i = 0; i < 3; i++) {
      if (!(*list)[i].is_number()) return config_error(key, "must be three numbers");
      read[i] = (*list)[i].to_number<double>();
    }
  }
  for (size_t i = 0; i < 3; i++) {
    const auto value = static_cast<float>(read[i]);
    if (!std::isfinite(value) || std::abs(value) > 1e6f) return config_error(key, "must be three finite numbers");
    if (divisor && value < 1e-6f) return config_error(key, "must be three numbers above 0");
    (*values)[i] = value;
  }
  return {};
}

// min_pixels and max_pixels; or size.shortest_edge and size.longest_edge (numbers of pixels, too, for these models), or
// size.min_pixels and size.max_pixels. The first spelling wins, as in the original.
Status read_limits(const json::Object& config, image::ResizeLimits* limits) {
  if (const json::Value* size = json::find(config, "size")) {
    const auto* object = size->if_object();
    if (object == nullptr) return config_error("size", "must be an object");
    if (object->contains("height") || object->contains("width")) {
      return make_error(ErrorCode::kUnsupported,
                        "preprocessor_config.json: size with height and width is not a limit of pixels", "size");
    }
    for (const auto& [low, high] :
         {std::pair{"shortest_edge", "longest_edge"}, std::pair{"min_pixels", "max_pixels"}}) {
      TERN_RETURN_IF_ERROR(read_int(*object, low, 1, kMostPixels, &limits->min_pixels));
      TERN_RETURN_IF_ERROR(read_int(*object, high, 1, kMostPixels, &limits->max_pixels));
    }
  }
  TERN_RETURN_IF_ERROR(read_int(config, "min_pixels", 1, kMostPixels, &limits->min_pixels));
  return read_int(config, "max_pixels", 1, kMostPixels, &limits->max_pixels);
}

Status refuse_switched_off(const json::Object& config) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) {
    auto on = json::get_bool(config, key);
    if (!on.ok()) return config_error(key, "must be true or false");
    if (on->has_value() && !**on) {
      return make_error(ErrorCode::kUnsupported, fmt::format("preprocessor_config.json: {} cannot be false", key), key);
    }
  }
  return {};
}

}  // namespace

Status apply_preprocessor_config(const json::Object& config, const ArchitectureRules& rules, VisionProfile* profile) {
  TERN_RETURN_IF_ERROR(refuse_switched_off(config));
  TERN_RETURN_IF_ERROR(read_channels(config, "image_mean", false, &profile->mean));
  TERN_RETURN_IF_ERROR(read_channels(config, "image_std", true, &profile->std));
  auto rescale = json::get_double(config, "rescale_factor");
  if (!rescale.ok()) return config_error("rescale_factor", "must be a number");
  if (rescale->has_value()) {
    if (!(**rescale > 1e-9) || **rescale > 1e6) return config_error("rescale_factor", "must be above 0");
    profile->rescale = **rescale;
  }
  int64_t filter = static_cast<int64_t>(profile->filter);
  TERN_RETURN_IF_ERROR(read_int(config, "resample", 0, 5, &filter));
  if (filter < 1 || filter > 3) {
    return make_error(ErrorCode::kUnsupported,
                      "preprocessor_config.json: resample must be 1 (Lanczos), 2 (bilinear) or 3 (bicubic)",
                      "resample");
  }
  profile->filter = static_cast<image::Filter>(filter);
  TERN_RETURN_IF_ERROR(read_small_int(config, "patch_size", 128, &profile->layout.patch));
  TERN_RETURN_IF_ERROR(read_small_int(config, "merge_size", 8, &profile->layout.merge));
  TERN_RETURN_IF_ERROR(read_small_int(config, "temporal_patch_size", 8, &profile->layout.temporal));
  if (!rules.pixel_limits_from_file) return {};
  TERN_RETURN_IF_ERROR(read_limits(config, &profile->image_limits));
  if (rules.video_limits_from_file) profile->video_limits = profile->image_limits;
  return {};
}

Status check_profile(const VisionProfile& profile) {
  const auto impossible = [](std::string text) { return make_error(ErrorCode::kInvalidArgument, std::move(text)); };
  const auto check = [&](const image::ResizeLimits& limits, const char* what) -> Status {
    if (limits.min_pixels > limits.max_pixels) {
      return impossible(fmt::format("{}: at least {} pixels and at most {} contradict each other", what,
                                    limits.min_pixels, limits.max_pixels));
    }
    if (limits.max_pixels < limits.factor * limits.factor) {
      return impossible(fmt::format("{}: at most {} pixels are less than one token's {}", what, limits.max_pixels,
                                    limits.factor * limits.factor));
    }
    return {};
  };
  TERN_RETURN_IF_ERROR(check(profile.image_limits, "pictures"));
  if (profile.takes_video) TERN_RETURN_IF_ERROR(check(profile.video_limits, "frames of videos"));
  if (profile.layout.merge != 2) return impossible("merge_size must be 2");
  if (profile.sampling.min_frames < 1 || profile.sampling.min_frames > profile.sampling.max_frames) {
    return impossible(fmt::format("videos: at least {} frames and at most {} contradict each other",
                                  profile.sampling.min_frames, profile.sampling.max_frames));
  }
  return {};
}

}  // namespace tern::content
