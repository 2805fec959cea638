// The stages of a request in the MediaService.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "content/media/service/picture_work.h"
#include "content/media/service/service_core.h"
#include "content/media/service/work_bytes.h"
#include "image/codecs/upright.h"

namespace tern::content {
namespace {

std::span<const uint8_t> as_uint8(const std::vector<std::byte>& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

enum KeyTag : uint64_t { kFileTag = 1, kPixelsTag = 2 };
Hash128 joined_key(HashKey key, KeyTag tag, const Hash128& a, const Hash128& b) {
  const std::array<uint64_t, 5> words{tag, a.lo, a.hi, b.lo, b.hi};
  return siphash128(key, words.data(), sizeof(words));
}

void free_file(JobPart* part) { std::vector<std::byte>().swap(part->file); }

class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<uint64_t>* sum) : sum_(sum), start_(monotonic_ns()) {}
  ~Stopwatch() { *sum_ += static_cast<uint64_t>(monotonic_ns() - start_); }

 private:
  std::atomic<uint64_t>* sum_;
  int64_t start_;
};

// A few bytes, which are there again soon: what others hold is given back all the time.
template <class Work>
auto until_done(const Work& work) -> decltype(work()) {
  for (;;) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

// Memory that cannot be had ends this request alone.
template <class Work>
auto guarded(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {  // what the work held is free again
  }
  return until_done([] { return too_much_memory(); });
}

Error too_many_bytes() {
  return make_error(ErrorCode::kTooLarge, "the files of this request have more bytes than the limit");
}

}  // namespace

void ServiceCore::fail(Job* job, size_t i, Error error) {
  switch (error.code) {
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kCancelled:
    case ErrorCode::kInternal:
      break;
    default:
      error.code = ErrorCode::kInvalidArgument;  // of the client's media, whatever was wrong with them
  }
  if (i < job->parts.size()) {
    const std::string& where = job->parts[i].part.where;
    until_done([&] {
      std::string message = where.empty() ? error.message : fmt::format("{}: {}", where, error.message);
      error.param = where;
      error.message = std::move(message);
    });
  }
  const std::lock_guard lock(job->mutex);
  if (job->failed && i >= job->error_part) return;
  job->failed = true;
  job->error_part = i;
  job->error = std::move(error);
}

void ServiceCore::finish_part(const JobPtr& job, void (ServiceCore::*next)(const JobPtr&)) {
  if (--job->remaining == 0) (this->*next)(job);
}

void ServiceCore::start(const JobPtr& job) {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < job->parts.size(); i++) {
    if (job->parts[i].result == nullptr) wanted.push_back(i);
  }
  if (abandoned(*job)) return finish(job);
  if (wanted.empty()) return reserve(job);
  job->remaining = wanted.size();
  for (const size_t i : wanted) {
    const bool data = is_data_url(job->parts[i].part.url);
    // The threads of fetches wait on foreign hosts: half of them for a key, or for a request where there are no keys.
    const uint64_t group = data || job->owner == 0 ? job->queue : job->owner;
    (data ? cpu_ : net_).submit(job->queue, group, [this, job, i] { fetch_part(job, i); });
  }
}

bool ServiceCore::count_url_bytes(Job* job, int64_t bytes) {
  const auto size = static_cast<size_t>(std::abs(bytes));
  if (bytes < 0) {
    fetched_.give(size, job->owner);
    job->url_bytes -= size;
    job->file_bytes -= size;
    return true;
  }
  if (job->file_bytes.fetch_add(size) + size > options_.request_file_bytes) job->too_many_bytes = true;
  if (job->too_many_bytes || !fetched_.take(size, job->owner)) {
    job->file_bytes -= size;
    return false;
  }
  job->url_bytes += size;
  return true;
}

Expected<std::vector<std::byte>> ServiceCore::fetch_file(Job* job, const MediaPart& part) {
  const Stopwatch time(&fetch_ns_);
  fetch::FetchPolicy policy = options_.fetch;
  policy.max_bytes = file_limit(part.kind);
  policy.cancelled = [this, job] { return skip(*job); };
  if (is_data_url(part.url)) {
    auto file = options_.fetcher(part.url, policy);
    if (file.ok() && job->file_bytes.fetch_add(file->size()) + file->size() > options_.request_file_bytes) {
      return too_many_bytes();
    }
    return file;
  }
  int64_t counted = 0;
  policy.count = [&](int64_t bytes) {
    if (!count_url_bytes(job, bytes)) return false;
    counted += bytes;
    return true;
  };
  auto file = options_.fetcher(part.url, policy);
  const int64_t rest = file.ok() ? static_cast<int64_t>(file->size()) - counted : 0;
  const bool room = rest <= 0 || policy.count(rest);
  if (job->too_many_bytes && (!room || !file.ok())) return too_many_bytes();
  if (!room) return fetch::no_room();
  return file;
}

void ServiceCore::fetch_part(const JobPtr& job, size_t i) {
  JobPart& part = job->parts[i];
  if (skip(*job)) return finish_part(job, &ServiceCore::reserve);
  const bool data = is_data_url(part.part.url);
  auto file = guarded([&] { return fetch_file(job.get(), part.part); });
  std::string().swap(part.part.url);
  if (file.ok()) {
    part.file = std::move(*file);
  } else {
    fail(job.get(), i, std::move(file).error());
  }
  if (data) return examine_part(job, i);
  cpu_.submit(job->queue, [this, job, i] { examine_part(job, i); });
}

PreparedMediaPtr ServiceCore::cached(const Hash128& key) {
  lookups_++;
  PreparedMediaPtr found = cache_.find(key);
  if (found != nullptr) hits_++;
  return found;
}

void ServiceCore::keep(const JobPart& part, const PreparedMediaPtr& media) {
  if (!cache_.enabled()) return;
  cache_.insert(part.file_key, media);
  if (part.uuid_key.has_value()) cache_.insert(*part.uuid_key, media);
}

Status ServiceCore::examine(JobPart* part) {
  if (cache_.enabled()) {
    // An upload with the same bytes, to be prepared in the same way, needs no decoding.
    const Hash128 file = image::hash_file(as_uint8(part->file), key_);
    part->file_key = joined_key(key_, kFileTag, file, part->rules_key);
    part->result = cached(part->file_key);
    if (part->result != nullptr) {
      keep(*part, part->result);
      free_file(part);
      return {};
    }
  }
  if (part->part.kind == MediaKind::kVideo) return {};
  TERN_ASSIGN_OR_RETURN(part->facts, image::probe_image(as_uint8(part->file), options_.decode));
  const int width = part->facts.width, height = part->facts.height;
  TERN_ASSIGN_OR_RETURN(part->plan, plan_picture(options_.profile, part->rules.limits, width, height));
  if (!options_.apply_exif) return {};
  const auto bytes = as_uint8(part->file);
  part->orientation = image::exif_orientation(bytes.data(), bytes.size());
  if (part->orientation == 1) return {};
  // The picture and the one that is turned are held at once: four bytes a pixel at most, three of them counted.
  part->facts.working_bytes += static_cast<size_t>(width) * static_cast<size_t>(height) * 4;
  if (part->orientation < 5) return {};
  // Whether a picture with an alpha channel is turned, its pixels decide: room for either.
  TERN_ASSIGN_OR_RETURN(PicturePlan turned, plan_picture(options_.profile, part->rules.limits, height, width));
  if (part->facts.alpha) {
    turned.tokens = std::max(turned.tokens, part->plan.tokens);
    turned.patch_bytes = std::max(turned.patch_bytes, part->plan.patch_bytes);
  }
  part->plan = turned;
  return {};
}

void ServiceCore::examine_part(const JobPtr& job, size_t i) {
  if (!skip(*job)) {
    Status status = guarded([&] { return examine(&job->parts[i]); });
    if (!status.ok()) fail(job.get(), i, std::move(status).error());
  }
  finish_part(job, &ServiceCore::reserve);
}

Status ServiceCore::check_sizes(const Job& job) const {
  const int64_t limit = options_.max_request_tokens;
  if (limit <= 0 || job.tokens <= limit) return {};
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("The media of this request need {} tokens, more than the limit of {}", job.tokens.load(), limit));
}

void ServiceCore::reserve(const JobPtr& job) {
  if (skip(*job)) return finish(job);
  for (const JobPart& part : job->parts) {
    job->tokens += part.result != nullptr ? part.result->tokens : part.plan.tokens;
  }
  Status status = check_sizes(*job);
  if (!status.ok()) {
    fail(job.get(), job->parts.size(), std::move(status).error());
    return finish(job);
  }
  auto need = work_bytes(options_, *job, static_cast<size_t>(cpu_.threads()), static_cast<size_t>(video_.threads()));
  if (!need.ok()) {
    fail(job.get(), job->parts.size(), std::move(need).error());
    return finish(job);
  }
  job->video_bytes = static_cast<int64_t>(need->video_patches);
  accounts_->work.acquire(
      need->total, [this, job] { return abandoned(*job); },
      [this, job, bytes = need->total](bool taken) {
        job->work_reserved = taken ? bytes : 0;
        cpu_.submit(job->queue, [this, job] { start_decoding(job); });
      });
}

void ServiceCore::start_decoding(const JobPtr& job) {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < job->parts.size(); i++) {
    if (job->parts[i].result == nullptr) wanted.push_back(i);
  }
  if (wanted.empty() || skip(*job)) return finish(job);
  job->remaining = wanted.size();
  // A picture by itself is this thread's: every other thread that is woken costs time.
  if (wanted.size() == 1 && job->parts[wanted[0]].part.kind == MediaKind::kImage) {
    return media_part(job, wanted[0], &ServiceCore::decode_picture);
  }
  for (const size_t i : wanted) {
    if (job->parts[i].part.kind == MediaKind::kImage) {
      cpu_.submit(job->queue, [this, job, i] { media_part(job, i, &ServiceCore::decode_picture); });
    } else {
      video_.submit(job->queue, [this, job, i] { media_part(job, i, &ServiceCore::read_video); });
    }
  }
}

PrepareContext ServiceCore::context(Job* job) {
  return {options_.profile, normaliser_, buffers_, key_, options_.want_sha256, &job->taken, cpu_, job->queue};
}

Expected<PreparedMediaPtr> ServiceCore::decode_picture(Job* job, JobPart* part) {
  image::Image image;
  const image::PictureFacts& facts = part->facts;
  std::optional<PictureWork> as_it_lies;  // begun while the picture is decoded
  if (part->orientation == 1) as_it_lies.emplace(context(job), part->plan, facts.width, facts.height);
  {
    const Stopwatch time(&decode_ns_);
    image::RowWatch* watch = as_it_lies ? &*as_it_lies : nullptr;
    TERN_RETURN_IF_ERROR(image::decode_image(as_uint8(part->file), options_.decode, &image, watch));
  }
  free_file(part);
  const Stopwatch time(&prepare_ns_);
  if (image.width() != facts.width || image.height() != facts.height) {
    return make_error(ErrorCode::kCorrupt, "the picture's header does not fit its content");
  }
  // Others may be reading a picture whose rows were told: opaque, and as it lies.
  if (part->orientation != 1 || image::is_transparent(image)) {
    TERN_ASSIGN_OR_RETURN(image, image::compose_upright(std::move(image), facts.format, part->orientation));
  }
  std::optional<PictureWork> upright;
  if (!as_it_lies) {
    TERN_ASSIGN_OR_RETURN(const PicturePlan plan,
                          plan_picture(options_.profile, part->rules.limits, image.width(), image.height()));
    upright.emplace(context(job), plan, image.width(), image.height());
  }
  PictureWork& work = as_it_lies ? *as_it_lies : *upright;
  const Hash128 fingerprint = work.fingerprint(image);  // from here on no other thread reads the picture
  const Hash128 pixels = joined_key(key_, kPixelsTag, fingerprint, part->rules_key);
  if (cache_.enabled()) {
    // The same picture in another file.
    PreparedMediaPtr found = cached(pixels);
    if (found != nullptr) return found;
  }
  TERN_ASSIGN_OR_RETURN(image, image::convert_rgb(std::move(image)));
  TERN_ASSIGN_OR_RETURN(PreparedMediaPtr media, work.finish(image, fingerprint, part->rules_key));
  if (cache_.enabled()) cache_.insert(pixels, media);
  return media;
}

Expected<PreparedMediaPtr> ServiceCore::read_video(Job* job, JobPart* part) {
  video::VideoOptions options;
  options.sampling = part->rules.sampling;
  options.limits = options_.video;
  options.helper = options_.video_helper;
  options.font_file = options_.font_file;
  video::Video video;
  {
    const Stopwatch time(&decode_ns_);
    TERN_ASSIGN_OR_RETURN(video, options_.video_reader(part->file, options));
  }
  free_file(part);
  const Stopwatch time(&prepare_ns_);
  if (video.frames.empty()) return make_error(ErrorCode::kCorrupt, "the video has no frames");
  TERN_ASSIGN_OR_RETURN(const PicturePlan plan,
                        plan_video(options_.profile, part->rules.limits, video.frames[0].width(),
                                   video.frames[0].height(), static_cast<int64_t>(video.frames.size())));
  job->tokens += plan.tokens;
  TERN_RETURN_IF_ERROR(check_sizes(*job));
  if ((job->video_bytes -= static_cast<int64_t>(plan.patch_bytes)) < 0) return too_much_memory();
  const double fps = part->rules.sampling.fps > 0 ? part->rules.sampling.fps
                     : video.facts.duration > 0   ? static_cast<double>(video.frames.size()) / video.facts.duration
                                                  : 0.0;
  return prepare_video(context(job), video.frames, fps, part->rules_key, part->rules.limits);
}

void ServiceCore::media_part(const JobPtr& job, size_t i, ReadPart read) {
  if (!skip(*job)) {
    JobPart& part = job->parts[i];
    auto media = guarded([&] { return (this->*read)(job.get(), &part); });
    if (media.ok()) {
      part.result = std::move(*media);
      keep(part, part.result);
    } else {
      fail(job.get(), i, std::move(media).error());
    }
  }
  finish_part(job, &ServiceCore::finish);
}

void ServiceCore::finish(const JobPtr& job) {
  for (JobPart& part : job->parts) free_file(&part);
  TERN_CHECK(job->taken <= job->work_reserved);
  accounts_->work.release(job->work_reserved - job->taken);
  files_.release(job->file_reserved, job->owner);
  fetched_.give(job->url_bytes, job->owner);
  const bool gone = abandoned(*job);
  if (gone) {
    job->done(make_error(ErrorCode::kCancelled, "the request was given up while its media were prepared"));
  } else if (job->failed) {
    failed_++;
    job->done(std::move(job->error));
  } else {
    std::vector<PreparedMediaPtr> results;
    for (JobPart& part : job->parts) {
      (part.result->kind == MediaKind::kImage ? images_ : videos_)++;
      results.push_back(std::move(part.result));
    }
    job->done(std::move(results));
  }
  job->done = nullptr;
  end_job(*job);
}

}  // namespace tern::content
