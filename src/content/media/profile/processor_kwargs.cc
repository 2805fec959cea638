// --mm-processor-kwargs (fastdeploy.md 4.4).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "content/media/profile/profile_rules.h"

namespace tern::content {
namespace {

enum class Type { kInt, kText };
struct Key {
  const char* name;
  Type type;
};
// min_pixels and max_pixels are the names that other servers have for the limits of pictures.
constexpr Key kKeys[] = {
    {"spatial_conv_size", Type::kInt},   {"temporal_conv_size", Type::kInt},
    {"image_min_pixels", Type::kInt},    {"image_max_pixels", Type::kInt},
    {"video_min_pixels", Type::kInt},    {"video_max_pixels", Type::kInt},
    {"video_target_frames", Type::kInt}, {"video_frames_sample", Type::kText},
    {"video_max_frames", Type::kInt},    {"video_min_frames", Type::kInt},
    {"video_fps", Type::kInt},           {"min_pixels", Type::kInt},
    {"max_pixels", Type::kInt},
};

const char* python_name(const json::Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "NoneType";
    case boost::json::kind::bool_:
      return "bool";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "int";
    case boost::json::kind::double_:
      return "float";
    case boost::json::kind::string:
      return "str";
    case boost::json::kind::array:
      return "list";
    case boost::json::kind::object:
      return "dict";
  }
  return "?";
}

Error bad(std::string_view key, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("--mm-processor-kwargs: {} {}", key, what),
                    "--mm-processor-kwargs");
}

// False, with a warning, when a value has the wrong type.
bool types_fit(const json::Object& kwargs) {
  for (const auto& member : kwargs) {
    const auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&](const Key& k) { return std::string_view(member.key()) == k.name; });
    if (key == std::end(kKeys)) {
      TERN_WARN("--mm-processor-kwargs: the key {} is not known and ignored", std::string_view(member.key()));
      continue;
    }
    const bool fits = key->type == Type::kInt ? member.value().is_int64() : member.value().is_string();
    if (!fits) {
      TERN_WARN("--mm-processor-kwargs: all of it is ignored: invalid type for {}: expected {}, got {}", key->name,
                key->type == Type::kInt ? "int" : "str", python_name(member.value()));
      return false;
    }
  }
  return true;
}

Status apply_number(const json::Object& kwargs, const char* key, int64_t low, int64_t high, int64_t* value) {
  const json::Value* found = json::find(kwargs, key);
  if (found == nullptr) return {};
  const int64_t number = found->as_int64();
  if (number < low || number > high) return bad(key, fmt::format("must be from {} to {}", low, high));
  *value = number;
  return {};
}

Status apply_number(const json::Object& kwargs, const char* key, int64_t low, int64_t high, int* value) {
  int64_t wide = *value;
  TERN_RETURN_IF_ERROR(apply_number(kwargs, key, low, high, &wide));
  *value = static_cast<int>(wide);
  return {};
}

Status apply_sampling(const json::Object& kwargs, video::SamplingRule* rule) {
  constexpr int64_t kMostFrames = 1 << 20;
  TERN_RETURN_IF_ERROR(apply_number(kwargs, "video_target_frames", -1, kMostFrames, &rule->target_frames));
  TERN_RETURN_IF_ERROR(apply_number(kwargs, "video_max_frames", 1, kMostFrames, &rule->max_frames));
  TERN_RETURN_IF_ERROR(apply_number(kwargs, "video_min_frames", 1, kMostFrames, &rule->min_frames));
  int64_t fps = 0;
  if (kwargs.contains("video_fps")) {
    TERN_RETURN_IF_ERROR(apply_number(kwargs, "video_fps", -1, 1000, &fps));
    rule->fps = static_cast<double>(fps);
  }
  if (const json::Value* sample = json::find(kwargs, "video_frames_sample")) {
    if (!parse_frame_choice(sample->as_string(), &rule->choice)) {
      return bad("video_frames_sample", "must be leading, middle or rand");
    }
  }
  return {};
}

}  // namespace

bool parse_frame_choice(std::string_view name, video::FrameChoice* choice) {
  if (name == "leading") {
    *choice = video::FrameChoice::kLeading;
  } else if (name == "middle") {
    *choice = video::FrameChoice::kMiddle;
  } else if (name == "rand") {
    *choice = video::FrameChoice::kRandom;
  } else {
    return false;
  }
  return true;
}

Status apply_processor_kwargs(const json::Object& kwargs, VisionProfile* profile) {
  if (!types_fit(kwargs)) return {};
  constexpr int64_t kMostPixels = int64_t{1} << 28;
  int64_t spatial = profile->layout.merge, temporal = profile->frames_per_unit;
  TERN_RETURN_IF_ERROR(apply_number(kwargs, "spatial_conv_size", 1, 64, &spatial));
  TERN_RETURN_IF_ERROR(apply_number(kwargs, "temporal_conv_size", 1, 64, &temporal));
  if (spatial != profile->layout.merge) return bad("spatial_conv_size", "must be what the model was made with");
  if (temporal != profile->frames_per_unit) return bad("temporal_conv_size", "must be what the model was made with");
  auto& image = profile->image_limits;
  for (const char* key : {"min_pixels", "image_min_pixels"}) {
    TERN_RETURN_IF_ERROR(apply_number(kwargs, key, 1, kMostPixels, &image.min_pixels));
  }
  for (const char* key : {"max_pixels", "image_max_pixels"}) {
    TERN_RETURN_IF_ERROR(apply_number(kwargs, key, 1, kMostPixels, &image.max_pixels));
    if (kwargs.contains(key)) profile->most_image_pixels = 0;  // the operator's word
  }
  TERN_RETURN_IF_ERROR(apply_number(kwargs, "video_min_pixels", 1, kMostPixels, &profile->video_limits.min_pixels));
  TERN_RETURN_IF_ERROR(apply_number(kwargs, "video_max_pixels", 1, kMostPixels, &profile->video_limits.max_pixels));
  return apply_sampling(kwargs, &profile->sampling);
}

}  // namespace tern::content
