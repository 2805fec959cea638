// Inside the part: one picture or video to patches. No threads, no cache, no budgets.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "content/media/item_rules.h"
#include "content/media/media.h"
#include "content/media/patch_buffers.h"
#include "content/media/vision_profile.h"
#include "media/decode.h"
#include "media/probe.h"

namespace tern::content {

// What a picture of this size becomes.
struct PicturePlan {
  int width = 0, height = 0;  // resized
  media::Grid grid;           // of one frame
  int64_t tokens = 0;
  size_t patch_bytes = 0;
};

// Errors: smart_resize's.
Expected<PicturePlan> plan_picture(const VisionProfile& profile, const media::ResizeLimits& limits, int width,
                                   int height);
// Of `frames` frames (a multiple of frames_per_unit), each of that size.
Expected<PicturePlan> plan_video(const VisionProfile& profile, const media::ResizeLimits& limits, int width, int height,
                                 int64_t frames);

struct PrepareContext {
  const VisionProfile& profile;
  const media::Normaliser& normaliser;
  PatchBuffers& buffers;
  HashKey key;  // of fingerprints
  bool want_sha256 = false;
  // Runs work(0) to work(count - 1), on several threads if it likes; empty: in order.
  std::function<void(int count, const std::function<void(int)>& work)> spread;
  std::atomic<size_t>* taken = nullptr;  // grows by the bytes of every buffer that is taken
};

// `fingerprint`: of the decoded picture (media::fingerprint). rgb: mode RGB.
Expected<PreparedMediaPtr> prepare_picture(const PrepareContext& context, const media::Image& rgb,
                                           const Hash128& fingerprint, const Hash128& rules, const PicturePlan& plan);

// Frames of equal size, in mode RGB. seconds_per_unit: of the video's time, for Qwen's positions.
Expected<PreparedMediaPtr> prepare_video(const PrepareContext& context, std::span<const media::Image> frames,
                                         double fps, const Hash128& rules, const media::ResizeLimits& limits);

}  // namespace tern::content
