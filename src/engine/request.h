// What enters and leaves the engine. Values only: no handles, no pointers; other processes will send them too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory/raw_bytes.h"
#include "base/sampling_params.h"
#include "engine/grammar.h"

namespace tern::engine {

using RequestId = uint64_t;

struct ExtraKey {
  int32_t begin = 0,
          end = 0;  // prompt tokens [begin, end) whose content the ids do not say (a picture), or all (a salt)
  uint64_t key[2] = {0, 0};
};

enum class MediaKind : uint8_t { kImage, kVideo };

// What the tower encodes at once and no chunk cuts: an image, or two frames of a video. Filled in by the server;
// nothing of it comes from the client.
struct MediaItem {
  MediaKind kind = MediaKind::kImage;
  int32_t begin = 0, end = 0;   // prompt tokens [begin, end): its placeholders, without the markers
  int32_t t = 1, h = 0, w = 0;  // patches
  uint64_t key[2] = {0, 0};     // fingerprint of the pixels, the grid and how they were prepared (and the salt)
  // Patch rows as the tower reads them; immutable, shared with the processor cache. Rows of this item begin at byte
  // `offset`.
  std::shared_ptr<const RawBytes> patches;
  size_t offset = 0, bytes = 0;
};

// Which rows of a pooling model's prompt are its answer; of kMean their mean. All but kLast need rows that a prefix hit
// would skip.
enum class PooledRows : uint8_t { kLast, kFirst, kMean, kAll };

struct Request {
  RequestId id = 0;             // given by serve, unique while the process lives
  uint64_t owner = 0;           // opaque: requests that wait are taken fairly over owners
  std::string external_id;      // "chatcmpl-...", for logs
  std::vector<int32_t> prompt;  // token ids, each in [0, vocabulary)
  SamplingParams sampling;
  int32_t max_answer_tokens = 0;  // after sampling.thinking_mark; 0: any number
  int32_t max_tokens = 0;         // > 0; already clamped to max_model_len - prompt
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  Constraint constraint;                             // guided decoding; needs EngineConfig::mask_threads
  std::vector<std::vector<int32_t>> stop_sequences;  // matched on ids against the end of the output
  std::vector<ExtraKey> extra_keys;
  std::vector<MediaItem> media;           // ordered by begin, not overlapping
  std::vector<int32_t> positions;         // [3, prompt] t, h, w of every prompt token; empty: 0, 1, 2 ... in all three
  int32_t rope_delta = 0;                 // position of a generated token minus its index in the sequence
  int64_t arrival_ns = 0;                 // monotonic
  int64_t deadline_ns = 0;                // monotonic; 0: none
  PooledRows pooled = PooledRows::kLast;  // pooling models; they need max_tokens 1 and sample nothing
  std::string last_said;                  // the client's last text, only for engines that answer from a script
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAbort, kError };

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 for the most likely
};

struct TokenOutput {
  int32_t id = 0;
  // Sampled token first, then the most likely ones; empty unless asked for.
  std::vector<TokenLogprob> logprobs;
  // Where the engine has them (EngineConfig): nats of what it was drawn from, -1: none; the ids that truncation left.
  float entropy = -1.0f;
  std::vector<int32_t> kept;
};

struct RequestTimes {  // monotonic nanoseconds; 0: not reached
  // planned: when the plan began that gave it its slot and blocks, scheduled: when that had been made.
  int64_t arrival = 0, planned = 0, scheduled = 0, first_token = 0, finished = 0;
};

// It lost its blocks and got others later; monotonic nanoseconds, 0: it ended before.
struct Preemption {
  int64_t begin = 0, end = 0;
};

// One step's news of one request.
struct Delta {
  RequestId id = 0;
  std::vector<TokenOutput> tokens;
  FinishReason finish = FinishReason::kNone;
  int32_t stop_sequence = -1;  // index of the stop sequence that matched
  int32_t stop_token = -1;     // the end-of-text or stop id that matched
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, from the prefix cache
  int32_t preemptions = 0;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;  // entry i: of prompt token i + 1; with the first delta
  std::vector<Preemption> interruptions;                   // with the last delta
  std::vector<float> pooled;  // of a pooling model, with the last delta: a vector for each of the rows asked for
  Error error;                // finish == kError
  RequestTimes times;
};

// Figures of the moment, for /metrics and the console line.
struct EngineStats {
  int running = 0, waiting = 0, preempted_waiting = 0;
  int total_blocks = 0, free_blocks = 0, usable_blocks = 0;
  int max_num_seqs = 0;
  int capacity = 0;                     // open requests that the engine takes
  int64_t open_tokens = 0;              // known tokens of all open requests: prompts and confirmed output
  uint64_t steps = 0, graph_steps = 0;  // collected; of them those whose forward pass was a replayed graph
  uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  uint64_t prefix_lookup_tokens = 0, prefix_hit_tokens = 0, prefix_lookups = 0, prefix_hits = 0;
  uint64_t tower_ns = 0, tower_calls = 0, tower_items = 0, tower_patches = 0;  // rank thread
  uint64_t encoder_lookups = 0, encoder_hits = 0;  // items asked of the encoder-output cache, and found there
  uint64_t late_allocations = 0;  // of device memory and pinned memory since the start; none is expected
  bool healthy = true;
  int64_t busy_since_ns = 0;  // monotonic: when the engine's loop began its turn; 0: it waits for news
};

struct AbortedRequest {
  RequestId id = 0;
  int32_t generated_tokens = 0;
};

}  // namespace tern::engine
