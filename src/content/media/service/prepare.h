// Inside the part: what pictures and videos become, and a video to patches. No cache, no budgets.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "content/media/media.h"
#include "content/media/profile/item_rules.h"
#include "content/media/profile/vision_profile.h"
#include "content/media/service/fair_pool.h"
#include "content/media/service/patch_buffers.h"
#include "image/patches.h"

namespace tern::content {

// What a picture of this size becomes.
struct PicturePlan {
  int width = 0, height = 0;  // resized
  image::Grid grid;           // of one frame
  int64_t tokens = 0;
  size_t patch_bytes = 0;
};

// Errors: smart_resize's.
Expected<PicturePlan> plan_picture(const VisionProfile& profile, const image::ResizeLimits& limits, int width,
                                   int height);
// Of `frames` frames (a multiple of frames_per_unit), each of that size.
Expected<PicturePlan> plan_video(const VisionProfile& profile, const image::ResizeLimits& limits, int width, int height,
                                 int64_t frames);

struct PrepareContext {
  const VisionProfile& profile;
  const image::Normaliser& normaliser;
  PatchBuffers& buffers;
  HashKey key;  // of fingerprints
  bool want_sha256 = false;
  std::atomic<size_t>* taken = nullptr;  // grows by the bytes of every buffer that is taken
  FairPool& pool;                        // whose idle threads help
  uint64_t queue;
};

std::shared_ptr<PatchBuffers::Buffer> take_buffer(const PrepareContext& context, size_t bytes);
// The key of a unit from its frames.
void set_key(MediaUnit* unit, std::span<const Hash128> fingerprints, const Hash128& rules, HashKey key);
// Of all resized frames, one after the other.
Expected<std::string> resized_digest(const PrepareContext& context, std::span<const image::Image> frames,
                                     const PicturePlan& plan);
Expected<image::PatchMaker> patch_maker(const PrepareContext& context, int width, int height, const PicturePlan& plan);
// A band of one frame's patches; `out` is where the frame's first one stands.
Status write_band(const PrepareContext& context, const image::PatchMaker& maker, const image::Image& rgb, int slot,
                  std::byte* out, const image::Band& band);

// Frames of equal size, in mode RGB. seconds_per_unit: of the video's time, for Qwen's positions.
Expected<PreparedMediaPtr> prepare_video(const PrepareContext& context, std::span<const image::Image> frames,
                                         double fps, const Hash128& rules, const image::ResizeLimits& limits);

}  // namespace tern::content
