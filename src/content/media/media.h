// From media parts of a request to patch rows and grids: fetching, decoding, resizing, cutting into patches, on a pool
// of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory/raw_bytes.h"
#include "json/json.h"

namespace tern::content {

enum class MediaKind : uint8_t { kImage, kVideo };

// One image_url or video_url part as the client sent it (fastdeploy.md 4.1), in the order of the prompt.
struct MediaPart {
  MediaKind kind = MediaKind::kImage;
  std::string url;      // data:, http(s)://, file://; empty: by uuid from the processor cache
  std::string uuid;     // empty: none
  json::Object kwargs;  // of this item (fps, max_frames, ...); within the server's ceilings
  std::string where;    // names the part in errors: "messages[0].content[1]"
};

// What the tower encodes at once and no chunk cuts: an image, or two frames of a video.
struct MediaUnit {
  int32_t t = 1, h = 0, w = 0;  // patches
  int32_t tokens = 0;
  size_t offset = 0, bytes = 0;  // of its rows in `patches`
  uint64_t key[2] = {0, 0};      // fingerprint of RGB bytes, grid and rules of preparation
};

// Immutable once made; shared by requests and the processor cache.
struct PreparedMedia {
  MediaKind kind = MediaKind::kImage;
  std::vector<MediaUnit> units;
  std::shared_ptr<const RawBytes> patches;
  int32_t tokens = 0;             // of all units
  int32_t t = 1, h = 0, w = 0;    // whole grid in merged cells: t * h * w == tokens
  double t_step = 1.0;            // image::PositionSpan
  std::string resized_sha256;     // only when asked for (tern preprocess)
  int32_t width = 0, height = 0;  // resized
  size_t bytes = 0;               // of the patches
};
using PreparedMediaPtr = std::shared_ptr<const PreparedMedia>;

struct MediaStats {
  uint64_t images = 0, videos = 0, failed = 0;
  uint64_t cache_lookups = 0, cache_hits = 0;
  uint64_t fetch_ns = 0, decode_ns = 0, prepare_ns = 0;
  uint64_t bytes_in_use = 0, waiting = 0;
  uint64_t cache_bytes = 0, cache_items = 0;  // of the processor cache
};

class MediaService {
 public:
  using Done = std::function<void(Expected<std::vector<PreparedMediaPtr>>)>;
  using Cancelled = std::shared_ptr<const std::atomic<bool>>;
  virtual ~MediaService() = default;
  // Prepares all parts of one request, in parallel, and calls `done` once, from a thread of the pool, with the results
  // in the order of `parts` or the error of the first part that failed: kInvalidArgument (kResourceExhausted: no
  // memory; kCancelled) with a fixed text and the part's name as `param`. Refuses at once what cannot be:
  // kResourceExhausted when too many requests wait, kInvalidArgument for a part without url and uuid, a missing uuid or
  // wrong kwargs; then `done` is not called. `owner` identifies who may share cached uuids (a key's salt): entries by
  // uuid are found by the same owner only. `cancelled`: once true, what is not begun is left undone and `done` gets
  // kCancelled soon. May be null.
  virtual Status prepare(std::vector<MediaPart> parts, uint64_t owner, Done done, Cancelled cancelled) = 0;
  Status prepare(std::vector<MediaPart> parts, uint64_t owner, Done done) {
    return prepare(std::move(parts), owner, std::move(done), nullptr);
  }
  virtual MediaStats stats() const = 0;
};

}  // namespace tern::content
