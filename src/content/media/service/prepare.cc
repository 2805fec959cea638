#include "content/media/service/prepare.h"

#include <algorithm>
#include <utility>

#include "base/sha256.h"

namespace tern::content {
namespace {

size_t value_bytes(const VisionProfile& profile) { return profile.bf16_patches ? sizeof(bf16) : sizeof(float); }

size_t row_bytes(const VisionProfile& profile) { return image::patch_values(profile.layout) * value_bytes(profile); }

// A frame in bands of rows, by all threads that have nothing to do.
Status write_frame(const PrepareContext& context, const image::PatchMaker& maker, const image::Image& rgb, int slot,
                   std::byte* out) {
  constexpr int kPatches = 512, kMostBands = 8;  // a band's, at least; more bands than that gain nothing
  const image::Grid& grid = maker.grid();
  const int rows = grid.h, bands = std::clamp(rows * grid.w / kPatches, 1, std::min(kMostBands, rows));
  if (bands == 1) return write_band(context, maker, rgb, slot, out, {});
  std::vector<Status> ended(static_cast<size_t>(bands));
  context.pool.spread(context.queue, bands, [&](int i) {
    const image::Band band{rows * i / bands, rows * (i + 1) / bands};
    ended[static_cast<size_t>(i)] = write_band(context, maker, rgb, slot, out, band);
  });
  const auto failed = std::find_if(ended.begin(), ended.end(), [](const Status& s) { return !s.ok(); });
  return failed == ended.end() ? Status() : std::move(*failed);
}

// How far t moves from one unit to the next: FastDeploy takes whole seconds, so that four frames a second stand still.
double time_step(const VisionProfile& profile, double fps) {
  if (profile.tokens_per_second <= 0 || !(fps > 0)) return 1.0;
  return static_cast<double>(static_cast<int64_t>(profile.frames_per_unit / fps)) * profile.tokens_per_second;
}

}  // namespace

std::shared_ptr<PatchBuffers::Buffer> take_buffer(const PrepareContext& context, size_t bytes) {
  if (context.taken != nullptr) context.taken->fetch_add(bytes);
  return context.buffers.take(bytes);
}

void set_key(MediaUnit* unit, std::span<const Hash128> fingerprints, const Hash128& rules, HashKey key) {
  std::vector<uint64_t> words;
  for (const Hash128& f : fingerprints) words.insert(words.end(), {f.lo, f.hi});
  words.insert(words.end(), {rules.lo, rules.hi, static_cast<uint64_t>(unit->t), static_cast<uint64_t>(unit->h),
                             static_cast<uint64_t>(unit->w)});
  const Hash128 hash = siphash128(key, words.data(), words.size() * sizeof(uint64_t));
  unit->key[0] = hash.lo;
  unit->key[1] = hash.hi;
}

Expected<std::string> resized_digest(const PrepareContext& context, std::span<const image::Image> frames,
                                     const PicturePlan& plan) {
  std::vector<uint8_t> bytes;
  for (const image::Image& rgb : frames) {
    TERN_ASSIGN_OR_RETURN(const image::Image resized,
                          image::resize_rgb(rgb, plan.width, plan.height, context.profile.filter));
    bytes.insert(bytes.end(), resized.data(), resized.data() + resized.size_bytes());
  }
  return sha256_hex(bytes.data(), bytes.size());
}

Expected<image::PatchMaker> patch_maker(const PrepareContext& context, int width, int height, const PicturePlan& plan) {
  const VisionProfile& p = context.profile;
  return image::PatchMaker::make(width, height, plan.width, plan.height, p.filter, p.layout, context.normaliser);
}

Status write_band(const PrepareContext& context, const image::PatchMaker& maker, const image::Image& rgb, int slot,
                  std::byte* out, const image::Band& band) {
  const image::Grid& grid = maker.grid();
  const size_t values = image::patch_values(context.profile.layout) * grid.h * grid.w;
  if (context.profile.bf16_patches) return maker.write(rgb, slot, reinterpret_cast<bf16*>(out), values, band);
  return maker.write(rgb, slot, reinterpret_cast<float*>(out), values, band);
}

Expected<PicturePlan> plan_picture(const VisionProfile& profile, const image::ResizeLimits& limits, int width,
                                   int height) {
  TERN_ASSIGN_OR_RETURN(const image::Size size, image::smart_resize(profile.resize_rule, width, height, limits));
  if (size.width > image::kMaxResizeSide || size.height > image::kMaxResizeSide) {
    return make_error(ErrorCode::kTooLarge, "a side of the resized picture is longer than the limit");
  }
  PicturePlan plan;
  plan.width = static_cast<int>(size.width);
  plan.height = static_cast<int>(size.height);
  TERN_ASSIGN_OR_RETURN(plan.grid, image::patch_grid(profile.layout, plan.width, plan.height));
  plan.tokens = image::picture_tokens(profile.layout, plan.grid);
  plan.patch_bytes = row_bytes(profile) * plan.grid.h * plan.grid.w;
  return plan;
}

Expected<PicturePlan> plan_video(const VisionProfile& profile, const image::ResizeLimits& limits, int width, int height,
                                 int64_t frames) {
  TERN_ASSIGN_OR_RETURN(PicturePlan plan, plan_picture(profile, limits, width, height));
  plan.tokens = frames / profile.frames_per_unit * plan.tokens;
  plan.patch_bytes = frames / profile.layout.temporal * plan.patch_bytes;
  return plan;
}

Expected<PreparedMediaPtr> prepare_video(const PrepareContext& context, std::span<const image::Image> frames,
                                         double fps, const Hash128& rules, const image::ResizeLimits& limits) {
  const VisionProfile& profile = context.profile;
  const auto broken = [] { return make_error(ErrorCode::kInternal, "the video's frames do not fit together"); };
  const size_t per_unit = profile.frames_per_unit, temporal = profile.layout.temporal;
  if (frames.empty() || frames.size() % per_unit != 0) return broken();
  const int width = frames[0].width(), height = frames[0].height();
  for (const image::Image& frame : frames) {
    if (frame.mode() != image::Mode::kRGB || frame.width() != width || frame.height() != height) return broken();
  }
  TERN_ASSIGN_OR_RETURN(const PicturePlan one, plan_picture(profile, limits, width, height));
  TERN_ASSIGN_OR_RETURN(const PicturePlan all,
                        plan_video(profile, limits, width, height, static_cast<int64_t>(frames.size())));
  auto media = std::make_shared<PreparedMedia>();
  media->kind = MediaKind::kVideo;
  auto buffer = take_buffer(context, all.patch_bytes);
  TERN_ASSIGN_OR_RETURN(const image::PatchMaker maker, patch_maker(context, width, height, one));
  std::vector<Hash128> fingerprints(per_unit);
  for (size_t begin = 0; begin < frames.size(); begin += per_unit) {
    MediaUnit unit;
    unit.t = static_cast<int32_t>(per_unit / temporal);
    unit.h = one.grid.h;
    unit.w = one.grid.w;
    unit.tokens = static_cast<int32_t>(one.tokens);
    unit.offset = begin / temporal * one.patch_bytes;
    unit.bytes = per_unit / temporal * one.patch_bytes;
    for (size_t i = 0; i < per_unit; i++) {
      const image::Image& frame = frames[begin + i];
      fingerprints[i] = image::fingerprint(frame, context.key);
      const int slot = temporal > 1 ? static_cast<int>(i % temporal) : image::kAllSlots;
      std::byte* out = buffer->data() + unit.offset + i / temporal * one.patch_bytes;
      TERN_RETURN_IF_ERROR(write_frame(context, maker, frame, slot, out));
    }
    set_key(&unit, fingerprints, rules, context.key);
    media->units.push_back(unit);
  }
  media->patches = std::move(buffer);
  media->tokens = static_cast<int32_t>(all.tokens);
  media->t = static_cast<int32_t>(frames.size() / per_unit);
  media->h = one.grid.h / profile.layout.merge;
  media->w = one.grid.w / profile.layout.merge;
  media->t_step = time_step(profile, fps);
  media->width = one.width;
  media->height = one.height;
  media->bytes = all.patch_bytes;
  if (context.want_sha256) {
    TERN_ASSIGN_OR_RETURN(media->resized_sha256, resized_digest(context, frames, one));
  }
  return PreparedMediaPtr(std::move(media));
}

}  // namespace tern::content
