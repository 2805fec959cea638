#include "content/media/service/service_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/check.h"
#include "base/machine/cpus.h"

namespace tern::content {
namespace {

constexpr size_t kKeepBytes = size_t{128} << 20;  // of unused patch memory

Error refused(std::string message, const MediaPart& part) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), part.where);
}

// What one key may have of what all share. Requests without a key have no such limit.
size_t share_of(size_t all) { return all - all / 4; }

int thread_count(int wanted) { return wanted > 0 ? wanted : usable_cpus(); }

}  // namespace

bool is_data_url(std::string_view url) {
  constexpr std::string_view kScheme = "data:";
  return url.size() >= kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), url.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

ServiceCore::ServiceCore(MediaOptions options, size_t cache_bytes)
    : options_(std::move(options)),
      key_(random_hash_key()),
      normaliser_(options_.profile.normalise, options_.profile.rescale, options_.profile.mean, options_.profile.std),
      accounts_(std::make_shared<Accounts>(options_.total_bytes + cache_bytes)),
      cache_(cache_bytes),
      buffers_(kKeepBytes,
               [accounts = accounts_](size_t bytes, std::shared_ptr<PatchBuffers::Buffer> rest) {
                 const bool waited_for = accounts->work.give_back(bytes);
                 const std::lock_guard lock(accounts->mutex);
                 if (accounts->pool == nullptr || (!waited_for && rest == nullptr)) return;
                 // Waking others and freeing pages is not for the releasing thread: it may be the engine's.
                 accounts->pool->submit(0, [accounts, freed = std::move(rest)]() mutable {
                   freed = nullptr;
                   accounts->work.poke();
                 });
               }),
      files_(options_.total_file_bytes, share_of(options_.total_file_bytes)),
      fetched_(options_.total_file_bytes, share_of(options_.total_file_bytes)),
      cpu_("media", thread_count(options_.threads), options_.background),
      net_("media-fetch", options_.fetch_threads, options_.background, std::max(1, options_.fetch_threads / 2)),
      video_("media-video", options_.video_threads, options_.background) {
  accounts_->work.set_reclaim([this](size_t bytes) { cache_.evict_unused(bytes); });
  accounts_->pool = &cpu_;
}

ServiceCore::~ServiceCore() {
  stopping_ = true;
  files_.poke();
  accounts_->work.poke();
  {
    std::unique_lock lock(jobs_mutex_);
    jobs_gone_.wait(lock, [&] { return jobs_ == 0; });
  }
  const std::lock_guard lock(accounts_->mutex);
  accounts_->pool = nullptr;
}

Hash128 ServiceCore::uuid_key(const MediaPart& part, uint64_t owner) const {
  // Another owner's or another kind's entry of the same name is another entry.
  std::string text = fmt::format("uuid {} {} ", owner, static_cast<int>(part.kind));
  text += part.uuid;
  return siphash128(key_, text.data(), text.size());
}

// Items without a URL come from the cache. Their numbers in the error count such items alone, as in the original.
Status ServiceCore::find_missing(Job* job) {
  size_t number = 0;
  for (JobPart& part : job->parts) {
    if (!part.part.url.empty()) continue;
    if (!cache_.enabled()) return refused("Missing items cannot be retrieved without processor cache.", part.part);
    part.result = cached(*part.uuid_key);
    if (part.result == nullptr) {
      return refused(fmt::format("Missing item {} not found in processor cache", number), part.part);
    }
    number++;
  }
  return {};
}

Status ServiceCore::accept(std::vector<MediaPart> parts, uint64_t owner, Job* job) {
  job->parts = std::vector<JobPart>(parts.size());
  for (size_t i = 0; i < parts.size(); i++) {
    JobPart& part = job->parts[i];
    part.part = std::move(parts[i]);
    const bool image = part.part.kind == MediaKind::kImage;
    if (part.part.url.empty() && part.part.uuid.empty()) {
      return refused(fmt::format("Both {} and uuid are missing", image ? "image_url" : "video_url"), part.part);
    }
    if (!image && !options_.profile.takes_video) return refused("This model does not take videos", part.part);
    auto rules = item_rules(options_.profile, part.part.kind, part.part.kwargs, options_.video.max_frames);
    if (!rules.ok()) return refused(fmt::format("{}: {}", part.part.where, rules.error().message), part.part);
    part.rules = *rules;
    part.rules_key = rules_digest(options_.profile, part.part.kind, part.rules, options_.apply_exif, key_);
    if (!part.part.uuid.empty() && cache_.enabled()) part.uuid_key = uuid_key(part.part, owner);
  }
  return find_missing(job);
}

size_t ServiceCore::file_limit(MediaKind kind) const {
  const size_t limit = kind == MediaKind::kImage ? options_.decode.bytes : options_.video.max_bytes;
  return std::min(limit, options_.request_file_bytes);
}

// A data: URL says how large its file is. What is fetched is counted as it comes.
size_t ServiceCore::files_wanted(const Job& job) const {
  size_t sum = 0;
  for (const JobPart& part : job.parts) {
    const std::string& url = part.part.url;
    if (part.result == nullptr && is_data_url(url)) sum += url.size() / 4 * 3 + 3;
  }
  return std::min(sum, options_.request_file_bytes);
}

Status ServiceCore::prepare(std::vector<MediaPart> parts, uint64_t owner, Done done, Cancelled cancelled) {
  auto job = std::make_shared<Job>();
  job->queue = next_queue_++;
  job->owner = owner;
  job->done = std::move(done);
  job->cancelled = std::move(cancelled);
  TERN_RETURN_IF_ERROR(accept(std::move(parts), owner, job.get()));
  TERN_RETURN_IF_ERROR(count_job(*job));
  job->file_reserved = files_wanted(*job);
  files_.acquire(
      job->file_reserved, owner, [this, job] { return abandoned(*job); },
      [this, job](bool taken) {
        if (!taken) job->file_reserved = 0;
        cpu_.submit(job->queue, [this, job] { start(job); });
      });
  return {};
}

Status ServiceCore::count_job(const Job& job) {
  const std::lock_guard lock(jobs_mutex_);
  if (stopping_) return make_error(ErrorCode::kUnavailable, "shutting down");
  const auto own = jobs_of_.find(job.owner);
  const bool beyond_share = own != jobs_of_.end() && own->second >= share_of(options_.max_waiting);
  if (jobs_ >= options_.max_waiting || beyond_share) {
    return make_error(ErrorCode::kResourceExhausted, "too many requests with media are waiting; try again later");
  }
  jobs_++;
  if (job.owner != 0) jobs_of_[job.owner]++;
  return {};
}

void ServiceCore::end_job(const Job& job) {
  const std::lock_guard lock(jobs_mutex_);
  const auto own = jobs_of_.find(job.owner);
  if (own != jobs_of_.end() && --own->second == 0) jobs_of_.erase(own);
  if (--jobs_ == 0) jobs_gone_.notify_all();
}

MediaStats ServiceCore::stats() const {
  MediaStats stats;
  stats.images = images_;
  stats.videos = videos_;
  stats.failed = failed_;
  stats.cache_lookups = lookups_;
  stats.cache_hits = hits_;
  stats.fetch_ns = fetch_ns_;
  stats.decode_ns = decode_ns_;
  stats.prepare_ns = prepare_ns_;
  stats.bytes_in_use = accounts_->work.in_use() + files_.in_use() + fetched_.in_use();
  stats.waiting = accounts_->work.waiting() + files_.waiting();
  stats.cache_bytes = cache_.bytes();
  stats.cache_items = cache_.items();
  return stats;
}

Expected<std::unique_ptr<MediaService>> make_media_service(MediaOptions options) {
  const auto bad = [](std::string text) { return make_error(ErrorCode::kInvalidArgument, std::move(text)); };
  if (options.request_bytes > options.total_bytes || options.request_file_bytes > options.total_file_bytes) {
    return bad("the media budget of one request is larger than that of all");
  }
  if (options.threads < 0 || options.fetch_threads < 1 || options.video_threads < 1) {
    return bad("media preparation needs threads");
  }
  if (options.processor_cache_gib != -1 && !(options.processor_cache_gib >= 0 && options.processor_cache_gib < 1e6)) {
    return bad("--max-processor-cache must be -1 or a number of GiB");
  }
  constexpr double kDefaultGib = 4.0;
  const double gib = options.processor_cache_gib < 0 ? kDefaultGib : options.processor_cache_gib;
  const auto cache_bytes = static_cast<size_t>(gib * static_cast<double>(size_t{1} << 30));
  if (!options.fetcher) options.fetcher = fetch::fetch;
  if (!options.video_reader) options.video_reader = default_video_reader();
  return std::unique_ptr<MediaService>(std::make_unique<ServiceCore>(std::move(options), cache_bytes));
}

}  // namespace tern::content
