// Inside the part: the MediaService's stages. A request waits for room for its files, fetches and looks at them, waits
// for room for pixels and patches (all at once, known from the headers), and then decodes. Nothing waits on a thread
// of the pools but the sockets of fetches and the child processes of videos, which have threads of their own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "content/media/service/byte_budget.h"
#include "content/media/service/fair_pool.h"
#include "content/media/service/media_job.h"
#include "content/media/service/media_service.h"
#include "content/media/service/patch_buffers.h"
#include "content/media/service/prepare.h"
#include "content/media/service/processor_cache.h"
#include "image/patches.h"

namespace tern::content {

bool is_data_url(std::string_view url);
VideoReader default_video_reader();

class ServiceCore : public MediaService {
 public:
  ServiceCore(MediaOptions options, size_t cache_bytes);
  ~ServiceCore() override;

  using MediaService::prepare;
  Status prepare(std::vector<MediaPart> parts, uint64_t owner, Done done, Cancelled cancelled) override;
  MediaStats stats() const override;

 private:
  // Outlives the service: buffers of patches give their bytes back here.
  struct Accounts {
    explicit Accounts(size_t total) : work(total) {}
    ByteBudget work;
    std::mutex mutex;
    FairPool* pool = nullptr;  // null when the service is gone
  };

  Status accept(std::vector<MediaPart> parts, uint64_t owner, Job* job);
  Status find_missing(Job* job);
  Hash128 uuid_key(const MediaPart& part, uint64_t owner) const;
  size_t file_limit(MediaKind kind) const;
  size_t files_wanted(const Job& job) const;

  void start(const JobPtr& job);                   // room for files is there
  void fetch_part(const JobPtr& job, size_t i);    // on net_, or on cpu_ for data: URLs
  void examine_part(const JobPtr& job, size_t i);  // on cpu_
  void reserve(const JobPtr& job);                 // all parts are looked at
  Status check_sizes(const Job& job) const;
  void start_decoding(const JobPtr& job);  // room for pixels and patches is there
  // On cpu_ and on video_. `read` makes the part's result from what was fetched.
  using ReadPart = Expected<PreparedMediaPtr> (ServiceCore::*)(Job* job, JobPart* part);
  void media_part(const JobPtr& job, size_t i, ReadPart read);
  void finish_part(const JobPtr& job, void (ServiceCore::*next)(const JobPtr&));
  void finish(const JobPtr& job);
  void end_job(const Job& job);
  Status count_job(const Job& job);
  Expected<std::vector<std::byte>> fetch_file(Job* job, const MediaPart& part);
  // Bytes of a file come, or (negative) go. False when the request, its key or all have too many.
  bool count_url_bytes(Job* job, int64_t bytes);

  Status examine(JobPart* part);
  Expected<PreparedMediaPtr> decode_picture(Job* job, JobPart* part);
  Expected<PreparedMediaPtr> read_video(Job* job, JobPart* part);
  PreparedMediaPtr cached(const Hash128& key);
  void keep(const JobPart& part, const PreparedMediaPtr& media);
  bool skip(const Job& job) const { return job.failed || abandoned(job); }
  bool abandoned(const Job& job) const { return stopping_ || (job.cancelled != nullptr && *job.cancelled); }
  void fail(Job* job, size_t i, Error error);
  PrepareContext context(Job* job);

  const MediaOptions options_;
  const HashKey key_;
  const image::Normaliser normaliser_;
  const std::shared_ptr<Accounts> accounts_;
  ProcessorCache cache_;
  PatchBuffers buffers_;
  ByteBudget files_;     // of data: URLs, whose size is known
  ByteCounter fetched_;  // as it comes
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> next_queue_{1};
  mutable std::mutex jobs_mutex_;
  std::condition_variable jobs_gone_;
  size_t jobs_ = 0;
  std::unordered_map<uint64_t, size_t> jobs_of_;  // owners; none is 0
  std::atomic<uint64_t> images_{0}, videos_{0}, failed_{0}, lookups_{0}, hits_{0};
  std::atomic<uint64_t> fetch_ns_{0}, decode_ns_{0}, prepare_ns_{0};
  // Last: their threads use all of the above. Each may submit to those before it.
  FairPool cpu_;
  FairPool net_;
  FairPool video_;
};

}  // namespace tern::content
