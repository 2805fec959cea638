#pragma once

#include <cstddef>

#include "base/error.h"
#include "content/media/service/media_job.h"
#include "content/media/service/media_service.h"

namespace tern::content {

// Memory for the pixels and patches of a request whose parts have been looked at.
struct WorkBytes {
  size_t total = 0;
  size_t video_patches = 0;  // of it: what patches of videos may take, whose sizes are known only when they are read
};

// `cpu_threads`, `video_threads`: how many pictures and videos are decoded at once. Fails above the request's limit.
Expected<WorkBytes> work_bytes(const MediaOptions& options, const Job& job, size_t cpu_threads, size_t video_threads);

Error too_much_memory();

}  // namespace tern::content
