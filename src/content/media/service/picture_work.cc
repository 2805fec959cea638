#include "content/media/service/picture_work.h"

#include <algorithm>
#include <utility>

namespace tern::content {
namespace {

// A picture of fewer patches is the work of one thread. A strip has about this many.
constexpr int kLeastPatches = 1024, kStripPatches = 128;
// Strips that may wait for helpers before the decoding thread lends a hand.
constexpr size_t kWaiting = 2;

}  // namespace

PictureWork::PictureWork(const PrepareContext& context, const PicturePlan& plan, int width, int height)
    : context_(context), plan_(plan), width_(width), height_(height), work_(context.pool, context.queue, [this](int i) {
        write_strip(i);
      }) {}

image::Band PictureWork::strip(int number) const {
  const int rows = plan_.grid.h;
  return {rows * number / strips_, rows * (number + 1) / strips_};
}

Status PictureWork::make_ready(int width, int height) {
  TERN_ASSIGN_OR_RETURN(maker_, patch_maker(context_, width, height, plan_));
  buffer_ = take_buffer(context_, plan_.patch_bytes);
  const int64_t patches = int64_t{plan_.grid.h} * plan_.grid.w;
  strips_ = patches < kLeastPatches
                ? 1
                : static_cast<int>(std::clamp<int64_t>(patches / kStripPatches, 1, int64_t{plan_.grid.h}));
  offered_.assign(static_cast<size_t>(strips_), false);
  return {};
}

void PictureWork::begin(const image::Image& image) {
  if (image.width() != width_ || image.height() != height_) return;
  status_ = make_ready(width_, height_);
  if (!status_.ok()) return;
  fingerprinter_.emplace(context_.key, active_isa());
  image_ = &image;
}

// A second decoding costs more than it gains where another picture could have the time.
bool PictureWork::share(Task task) {
  constexpr int kLeastThreads = 3;
  FairPool& pool = context_.pool;
  if (image_ == nullptr || strips_ == 1 || pool.threads() < kLeastThreads || pool.idle() < pool.threads() - 1) {
    return false;
  }
  pool.submit(context_.queue, std::move(task));
  return true;
}

bool PictureWork::told(const image::Rows& wanted) const {
  if (wanted.end <= upper_.end) return true;
  return wanted.end <= lower_.end && (wanted.begin >= lower_.begin || upper_.end >= lower_.begin);
}

int PictureWork::rows_from_top() const {
  const std::lock_guard lock(rows_mutex_);
  return upper_.end >= lower_.begin ? std::max(upper_.end, lower_.end) : upper_.end;
}

void PictureWork::rows(int begin, int end) {
  if (image_ == nullptr) return;
  {
    const std::lock_guard lock(rows_mutex_);
    if (begin == upper_.end) {
      upper_.end = end;
    } else {
      if (lower_.end == 0) lower_.begin = begin;
      lower_.end = end;
    }
    for (int i = 0; i < strips_; ++i) {
      if (offered_[static_cast<size_t>(i)] || !told(maker_->source_rows(strip(i)))) continue;
      offered_[static_cast<size_t>(i)] = true;
      work_.offer(i);
    }
  }
  work_.help(kWaiting);
}

void PictureWork::forget() {
  work_.finish();
  image_ = nullptr;
  fingerprinter_.reset();
}

void PictureWork::write_strip(int number) {
  Status status = write_band(context_, *maker_, *image_, image::kAllSlots, buffer_->data(), strip(number));
  if (!status.ok()) {
    const std::lock_guard lock(status_mutex_);
    status_ = std::move(status);
  }
  const std::unique_lock lock(fingerprint_mutex_, std::try_to_lock);
  if (lock.owns_lock() && fingerprinter_) fingerprinter_->add(*image_, rows_from_top());
}

Hash128 PictureWork::fingerprint(const image::Image& image) {
  if (!fingerprinter_) return image::fingerprint(image, context_.key);
  work_.finish();
  fingerprinter_->add(image, image.height());
  return fingerprinter_->finish(image);
}

Expected<PreparedMediaPtr> PictureWork::finish(const image::Image& rgb, const Hash128& fingerprint,
                                               const Hash128& rules) {
  if (image_ == nullptr && status_.ok()) {
    if (buffer_ == nullptr) TERN_RETURN_IF_ERROR(make_ready(rgb.width(), rgb.height()));
    image_ = &rgb;
    for (int i = 0; i < strips_; ++i) work_.offer(i);
  }
  work_.finish();
  TERN_RETURN_IF_ERROR(std::move(status_));
  auto media = std::make_shared<PreparedMedia>();
  MediaUnit unit;
  unit.h = plan_.grid.h;
  unit.w = plan_.grid.w;
  unit.tokens = static_cast<int32_t>(plan_.tokens);
  unit.bytes = plan_.patch_bytes;
  set_key(&unit, {&fingerprint, 1}, rules, context_.key);
  media->units.push_back(unit);
  media->patches = std::move(buffer_);
  media->tokens = unit.tokens;
  media->h = plan_.grid.h / context_.profile.layout.merge;
  media->w = plan_.grid.w / context_.profile.layout.merge;
  media->width = plan_.width;
  media->height = plan_.height;
  media->bytes = plan_.patch_bytes;
  if (context_.want_sha256) {
    TERN_ASSIGN_OR_RETURN(media->resized_sha256, resized_digest(context_, {&rgb, 1}, plan_));
  }
  return PreparedMediaPtr(std::move(media));
}

}  // namespace tern::content
