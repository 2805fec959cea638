#include "content/media/service/work_bytes.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "content/media/profile/vision_profile.h"
#include "image/patches.h"

namespace tern::content {
namespace {

// The most that patches of a video can take.
size_t video_patch_bytes(const VisionProfile& profile, const JobPart& part) {
  const int64_t frames = std::max(part.rules.sampling.max_frames, part.rules.sampling.target_frames) + 1,
                units = frames / profile.frames_per_unit + 1;
  VisionProfile own = profile;
  own.video_limits = part.rules.limits;
  const size_t row = image::patch_values(profile.layout) * (profile.bf16_patches ? sizeof(bf16) : sizeof(float));
  return static_cast<size_t>(units * max_video_unit_patches(own)) * row;
}

}  // namespace

Error too_much_memory() {
  return make_error(ErrorCode::kInvalidArgument, "The media of this request take more memory than the limit");
}

Expected<WorkBytes> work_bytes(const MediaOptions& options, const Job& job, size_t cpu_threads, size_t video_threads) {
  size_t patches = 0, video_patches = 0, videos = 0;
  std::vector<size_t> working;
  for (const JobPart& part : job.parts) {
    if (part.result != nullptr) continue;
    if (part.part.kind == MediaKind::kVideo) {
      videos++;
      video_patches += video_patch_bytes(options.profile, part);
      continue;
    }
    patches += part.plan.patch_bytes;
    working.push_back(part.facts.working_bytes);
  }
  const size_t at_once = std::min<size_t>(working.size(), cpu_threads);
  std::partial_sort(working.begin(), working.begin() + static_cast<ptrdiff_t>(at_once), working.end(),
                    std::greater<>());
  WorkBytes need{.total = patches};
  for (size_t i = 0; i < at_once; i++) need.total += working[i];
  need.total += std::min<size_t>(videos, video_threads) * options.video.frame_bytes;
  if (need.total > options.request_bytes) return too_much_memory();
  if (videos > 0) {
    need.video_patches = std::min(video_patches, options.request_bytes - need.total);
    need.total += need.video_patches;
  }
  return need;
}

}  // namespace tern::content
