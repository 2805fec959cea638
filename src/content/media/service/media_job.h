// Inside the part: one request on its way through the MediaService.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "content/media/profile/item_rules.h"
#include "content/media/service/media_service.h"
#include "content/media/service/prepare.h"
#include "image/codecs/probe.h"

namespace tern::content {

// One part. Written by one thread at a time: stages of a part follow each other.
struct JobPart {
  MediaPart part;
  ItemRules rules;
  Hash128 rules_key;
  std::optional<Hash128> uuid_key;  // where there is a uuid and a cache
  std::vector<std::byte> file;
  Hash128 file_key;
  image::PictureFacts facts;  // of a picture
  int orientation = 1;
  PicturePlan plan;  // of a picture
  PreparedMediaPtr result;
};

struct Job {
  uint64_t queue = 0, owner = 0;
  std::vector<JobPart> parts;
  MediaService::Done done;
  MediaService::Cancelled cancelled;
  std::atomic<size_t> remaining{0};  // parts that the present stage has not finished
  std::atomic<bool> failed{false};
  std::mutex mutex;  // of the error
  Error error;
  size_t error_part = SIZE_MAX;
  size_t file_reserved = 0, work_reserved = 0;  // file_reserved: for data: URLs
  std::atomic<size_t> file_bytes{0};            // that have come
  std::atomic<size_t> url_bytes{0};             // of those: not from data: URLs
  std::atomic<bool> too_many_bytes{false};      // more than one request may have
  std::atomic<size_t> taken{0};                 // of work_reserved: by patches, which give it back themselves
  std::atomic<int64_t> video_bytes{0};          // of work_reserved: left for patches of videos
  std::atomic<int64_t> tokens{0};               // of all parts so far
};
using JobPtr = std::shared_ptr<Job>;

}  // namespace tern::content
