// preprocessor_config.json and --mm-processor-kwargs of every architecture: the first line of the input is the kwargs,
// the rest the file. What is accepted must have limits that smart_resize keeps.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "content/media/profile/item_rules.h"
#include "content/media/profile/profile_rules.h"
#include "content/media/service/prepare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::content;
  static const bool quiet = (tern::set_log_level(tern::LogLevel::kError), true);
  (void)quiet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  const auto kwargs = tern::json::parse(text.substr(0, end));
  const auto file = tern::json::parse(end == std::string_view::npos ? "{}" : text.substr(end + 1));
  if (!kwargs.ok() || !kwargs->is_object() || !file.ok() || !file->is_object()) return 0;
  for (ArchitectureRules (*make)() : {ernie_vl_rules, paddleocr_vl_rules, qwen2_5_vl_rules}) {
    const ArchitectureRules rules = make();
    VisionProfile profile = rules.defaults;
    if (!apply_preprocessor_config(file->as_object(), rules, &profile).ok()) continue;
    if (!apply_processor_kwargs(kwargs->as_object(), &profile).ok()) continue;
    profile.image_limits.factor = profile.video_limits.factor = int64_t{profile.layout.patch} * profile.layout.merge;
    if (!check_profile(profile).ok()) continue;
    if (max_image_tokens(profile) < 1) std::abort();
    for (const auto& [w, h] : {std::pair{1, 1}, {640, 480}, {30, 6000}, {1, 200}, {9000, 9000}}) {
      const auto plan = plan_picture(profile, profile.image_limits, w, h);
      if (!plan.ok()) continue;
      if (plan->tokens > max_image_tokens(profile)) std::abort();
    }
    const auto item = item_rules(profile, MediaKind::kVideo, kwargs->as_object(), 768);
    if (item.ok() && item->limits.max_pixels > profile.video_limits.max_pixels) std::abort();
  }
  return 0;
}
