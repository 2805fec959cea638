#include "content/media/profile/item_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "content/media/profile/profile_rules.h"

namespace tern::content {
namespace {

Error bad(std::string_view key, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{} {}", key, what));
}

Status read_int(const json::Object& kwargs, const char* key, int64_t low, int64_t high, int64_t* value) {
  auto found = json::get_int(kwargs, key);
  if (!found.ok()) return bad(key, "must be an integer");
  if (!found->has_value()) return {};
  if (**found < low || **found > high) return bad(key, fmt::format("must be from {} to {}", low, high));
  *value = **found;
  return {};
}

Status read_int(const json::Object& kwargs, const char* key, int64_t low, int64_t high, int* value) {
  int64_t wide = *value;
  TERN_RETURN_IF_ERROR(read_int(kwargs, key, low, high, &wide));
  *value = static_cast<int>(wide);
  return {};
}

Status read_limits(const json::Object& kwargs, int64_t most_pixels, image::ResizeLimits* limits) {
  const int64_t ceiling = std::max(limits->max_pixels, most_pixels), cell = limits->factor * limits->factor;
  const bool named = json::find(kwargs, "min_pixels") != nullptr;
  TERN_RETURN_IF_ERROR(read_int(kwargs, "min_pixels", 1, ceiling, &limits->min_pixels));
  TERN_RETURN_IF_ERROR(read_int(kwargs, "max_pixels", cell, ceiling, &limits->max_pixels));
  if (limits->min_pixels > limits->max_pixels) {
    if (named) return bad("min_pixels", "must not be above max_pixels");
    limits->min_pixels = limits->max_pixels;  // only the upper one was asked for
  }
  return {};
}

Status read_sampling(const json::Object& kwargs, int most_frames, video::SamplingRule* rule) {
  auto fps = json::get_double(kwargs, "fps");
  if (!fps.ok()) return bad("fps", "must be a number");
  if (fps->has_value()) {
    if (!std::isfinite(**fps) || **fps < -1 || **fps == 0 || **fps > 1000)
      return bad("fps", "must be -1 or from 0 to 1000");
    rule->fps = **fps;
  }
  TERN_RETURN_IF_ERROR(read_int(kwargs, "max_frames", 1, most_frames, &rule->max_frames));
  if (json::find(kwargs, "max_frames") != nullptr && json::find(kwargs, "min_frames") == nullptr) {
    rule->min_frames = std::min(rule->min_frames, rule->max_frames);
  }
  TERN_RETURN_IF_ERROR(read_int(kwargs, "min_frames", 1, most_frames, &rule->min_frames));
  if (rule->min_frames > rule->max_frames) return bad("min_frames", "must not be above max_frames");
  TERN_RETURN_IF_ERROR(read_int(kwargs, "target_frames", -1, most_frames, &rule->target_frames));
  auto sample = json::get_string(kwargs, "frames_sample");
  if (!sample.ok() || (sample->has_value() && !parse_frame_choice(**sample, &rule->choice))) {
    return bad("frames_sample", "must be leading, middle or rand");
  }
  return {};
}

class Digest {
 public:
  template <class T>
  void add(const T& value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  Hash128 hash(HashKey key) const { return siphash128(key, bytes_.data(), bytes_.size()); }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace

Expected<ItemRules> item_rules(const VisionProfile& profile, MediaKind kind, const json::Object& kwargs,
                               int most_frames) {
  ItemRules rules;
  rules.limits = kind == MediaKind::kImage ? profile.image_limits : profile.video_limits;
  rules.sampling = profile.sampling;
  if (rules.sampling.max_frames > most_frames) rules.sampling.max_frames = most_frames;
  if (rules.sampling.min_frames > most_frames) rules.sampling.min_frames = most_frames;
  const int64_t most_pixels = kind == MediaKind::kImage ? profile.most_image_pixels : 0;
  TERN_RETURN_IF_ERROR(read_limits(kwargs, most_pixels, &rules.limits));
  if (kind == MediaKind::kVideo) TERN_RETURN_IF_ERROR(read_sampling(kwargs, most_frames, &rules.sampling));
  return rules;
}

Hash128 rules_digest(const VisionProfile& profile, MediaKind kind, const ItemRules& rules, bool apply_exif,
                     HashKey key) {
  Digest digest;
  digest.add(kind);
  digest.add(profile.resize_rule);
  digest.add(rules.limits.factor);
  digest.add(rules.limits.min_pixels);
  digest.add(rules.limits.max_pixels);
  digest.add(rules.limits.keep_factor);
  digest.add(profile.filter);
  digest.add(profile.normalise);
  digest.add(profile.rescale);
  for (const float v : profile.mean) digest.add(v);
  for (const float v : profile.std) digest.add(v);
  digest.add(profile.layout.patch);
  digest.add(profile.layout.merge);
  digest.add(profile.layout.temporal);
  digest.add(profile.layout.order);
  digest.add(profile.bf16_patches);
  digest.add(apply_exif);
  if (kind == MediaKind::kVideo) {
    digest.add(rules.sampling.fps);
    digest.add(rules.sampling.min_frames);
    digest.add(rules.sampling.max_frames);
    digest.add(rules.sampling.target_frames);
    digest.add(rules.sampling.choice);
    digest.add(rules.sampling.seed);
    digest.add(rules.sampling.qwen);
    digest.add(profile.frames_per_unit);
  }
  return digest.hash(key);
}

}  // namespace tern::content
