#include "content/media/profile/vision_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/log.h"
#include "content/media/profile/profile_rules.h"

namespace tern::content {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// By the architectures list; by model_type where there is none.
std::optional<ArchitectureRules> find_rules(const json::Object& config) {
  std::string name, type;
  if (const json::Value* list = json::find(config, "architectures")) {
    if (const auto* array = list->if_array(); array != nullptr && !array->empty() && (*array)[0].is_string()) {
      name = std::string((*array)[0].as_string());
    }
  }
  if (const json::Value* value = json::find(config, "model_type"); value != nullptr && value->is_string()) {
    type = std::string(value->as_string());
  }
  for (ArchitectureRules (*make)() : {ernie_vl_rules, paddleocr_vl_rules, qwen2_5_vl_rules}) {
    ArchitectureRules rules = make();
    if (name.empty() ? contains(rules.model_types, type) : contains(rules.architectures, name)) return rules;
  }
  return std::nullopt;
}

Expected<json::Value> read_object(const std::filesystem::path& path) {
  json::Limits limits;
  limits.max_bytes = size_t{4} << 20;
  auto value = json::parse_file(path.string(), limits);
  if (!value.ok()) return std::move(value).error();
  if (!value->is_object()) {
    return make_error(ErrorCode::kCorrupt, fmt::format("{} must hold an object", path.filename().string()));
  }
  return value;
}

// The image processor's numbers: preprocessor_config.json, else processor_config.json's image_processor; an empty
// object where neither is there.
Expected<json::Object> read_preprocessor(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / "preprocessor_config.json", ignored)) {
    TERN_ASSIGN_OR_RETURN(json::Value value, read_object(folder / "preprocessor_config.json"));
    return std::move(value.as_object());
  }
  if (std::filesystem::exists(folder / "processor_config.json", ignored)) {
    TERN_ASSIGN_OR_RETURN(json::Value value, read_object(folder / "processor_config.json"));
    const json::Value* nested = json::find(value.as_object(), "image_processor");
    if (nested != nullptr && nested->is_object()) return nested->as_object();
  }
  TERN_WARN("{} has no preprocessor_config.json: pictures are prepared with the architecture's defaults",
            folder.string());
  return json::Object();
}

class IdResolver {
 public:
  IdResolver(const json::Object& config, const Tokenizer* tokenizer) : config_(config), tokenizer_(tokenizer) {}

  // -1 where neither knows it.
  Expected<int32_t> resolve(const TokenSource& source) const {
    if (source.text.empty()) return int32_t{-1};
    std::optional<int64_t> configured;
    for (const std::string& key : source.keys) {
      TERN_ASSIGN_OR_RETURN(configured, json::get_int(config_, key));
      if (configured.has_value()) break;
    }
    if (configured.has_value() && (*configured < 0 || *configured > INT32_MAX)) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("config.json: the id of {} is out of range", source.text));
    }
    const std::optional<int32_t> known = tokenizer_ != nullptr ? tokenizer_->token_to_id(source.text) : std::nullopt;
    if (known.has_value()) {
      if (configured.has_value() && *configured != *known) {
        TERN_WARN("config.json says {} for {}, the tokenizer {}: the tokenizer's id is taken", *configured, source.text,
                  *known);
      }
      return *known;
    }
    return configured.has_value() ? static_cast<int32_t>(*configured) : int32_t{-1};
  }

  Status fill(const TokenSource& id, const TokenSource& start, const TokenSource& end, Placeholder* out) const {
    TERN_ASSIGN_OR_RETURN(out->id, resolve(id));
    TERN_ASSIGN_OR_RETURN(out->start, resolve(start));
    TERN_ASSIGN_OR_RETURN(out->end, resolve(end));
    if (out->id < 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("neither the tokenizer nor config.json ({}) knows the placeholder {}",
                                    fmt::join(id.keys, ", "), id.text));
    }
    if ((out->start < 0) != (out->end < 0)) out->start = out->end = -1;  // one marker alone means nothing
    return {};
  }

 private:
  const json::Object& config_;
  const Tokenizer* tokenizer_;
};

// What the tower was made with must be what preprocessing does.
Status apply_tower_config(const json::Object& config, const json::Object& preprocessor, VisionProfile* profile) {
  const json::Value* found = json::find(config, "vision_config");
  if (found == nullptr) return {};
  const auto* vision = found->if_object();
  if (vision == nullptr) return make_error(ErrorCode::kInvalidArgument, "config.json: vision_config must be an object");
  TERN_ASSIGN_OR_RETURN(const auto patch, json::get_int(*vision, "patch_size"));
  if (patch.has_value()) {
    if (*patch < 1 || *patch > 128) {
      return make_error(ErrorCode::kInvalidArgument, "config.json: vision_config.patch_size must be from 1 to 128");
    }
    if (!preprocessor.contains("patch_size")) profile->layout.patch = static_cast<int>(*patch);
    if (*patch != profile->layout.patch) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("patch_size is {} in preprocessor_config.json and {} in config.json",
                                    profile->layout.patch, *patch));
    }
  }
  if (profile->tokens_per_second > 0) {
    TERN_ASSIGN_OR_RETURN(const auto rate, json::get_double(*vision, "tokens_per_second"));
    if (rate.has_value()) {
      if (!(*rate > 0) || *rate > 1000) {
        return make_error(ErrorCode::kInvalidArgument, "config.json: tokens_per_second must be above 0");
      }
      profile->tokens_per_second = *rate;
    }
  }
  return {};
}

// The largest area that the rule can give, in tokens: above max_pixels only where a small picture is scaled up and
// rounded up with sides far apart, or a side is kept at one factor.
int64_t most_tokens(const VisionProfile& profile, const image::ResizeLimits& limits) {
  const double f = static_cast<double>(limits.factor);
  double area = static_cast<double>(limits.max_pixels);
  if (profile.resize_rule != image::ResizeRule::kErnieVl) {
    const double low = static_cast<double>(limits.min_pixels);
    area = std::max(area, (std::sqrt(low * 200) + f) * (std::sqrt(low / 200) + f));
    if (limits.keep_factor) area = std::max(area, 200 * f * f);
  }
  return static_cast<int64_t>(area / (f * f));
}

}  // namespace

Expected<std::optional<VisionProfile>> read_vision_profile(const ProfileOptions& options, const Tokenizer* tokenizer) {
  const std::filesystem::path folder(options.folder);
  TERN_ASSIGN_OR_RETURN(const json::Value config_value, read_object(folder / "config.json"));
  const json::Object& config = config_value.as_object();
  std::optional<ArchitectureRules> rules = find_rules(config);
  if (!rules.has_value()) return std::optional<VisionProfile>();
  if (options.hugging_face) use_hugging_face_rules(&*rules);
  TERN_ASSIGN_OR_RETURN(const json::Object preprocessor, read_preprocessor(folder));
  VisionProfile profile = rules->defaults;
  profile.bf16_patches = options.bf16;
  TERN_RETURN_IF_ERROR(apply_preprocessor_config(preprocessor, *rules, &profile));
  TERN_RETURN_IF_ERROR(apply_tower_config(config, preprocessor, &profile));
  if (profile.layout.temporal != rules->defaults.layout.temporal) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("preprocessor_config.json: temporal_patch_size must be {} for {}",
                                  rules->defaults.layout.temporal, profile.architecture));
  }
  TERN_RETURN_IF_ERROR(apply_processor_kwargs(options.mm_processor_kwargs, &profile));
  const int64_t factor = int64_t{profile.layout.patch} * profile.layout.merge;
  profile.image_limits.factor = profile.video_limits.factor = factor;
  TERN_RETURN_IF_ERROR(check_profile(profile));
  const IdResolver ids(config, tokenizer);
  TERN_RETURN_IF_ERROR(ids.fill(rules->image, rules->image_start, rules->image_end, &profile.image));
  if (profile.takes_video) {
    TERN_RETURN_IF_ERROR(ids.fill(rules->video, rules->video_start, rules->video_end, &profile.video));
  }
  return std::optional<VisionProfile>(std::move(profile));
}

int64_t max_image_tokens(const VisionProfile& profile) { return most_tokens(profile, profile.image_limits); }

int64_t max_video_unit_tokens(const VisionProfile& profile) {
  return profile.takes_video ? most_tokens(profile, profile.video_limits) : 0;
}

int64_t max_image_patches(const VisionProfile& profile) {
  return max_image_tokens(profile) * profile.layout.merge * profile.layout.merge;
}

int64_t max_video_unit_patches(const VisionProfile& profile) {
  const int frames = profile.frames_per_unit / profile.layout.temporal;
  return max_video_unit_tokens(profile) * profile.layout.merge * profile.layout.merge * frames;
}

}  // namespace tern::content
