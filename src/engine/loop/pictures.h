// Requests with pictures on the engine thread: which rows of the encoder cache a step takes, what it encodes, when
// patches go (CONTRACT.md, Pictures).
#pragma once

#include <utility>
#include <vector>

#include "base/hash.h"
#include "cache/encoder_cache.h"
#include "engine/generation.h"
#include "engine/loop/engine_parts.h"
#include "engine/step/step.h"

namespace tern::engine {

// What the scheduler, the prefix cache and the encoder cache know a prompt's pictures and salts by.
struct PromptKeys {
  std::vector<sched::ExtraKey> extra;             // ordered by begin
  std::vector<std::pair<int, int>> unsplittable;  // the pictures' tokens
  std::vector<Hash128> media;                     // of each picture, in the encoder cache
};
// Of a request whose pictures and positions are checked (request_check.h). `secret`: the prefix cache's key.
PromptKeys prompt_keys(const Request& request, HashKey secret);

class Pictures {
 public:
  explicit Pictures(const EngineParts& parts);

  // Adds what the scheduler must know of a request's pictures, and their keys in the encoder cache to `g`.
  void add(const Request& request, Generation& g, sched::NewSequence& s) const;
  // Tokens of the row that lie in pictures take rows of the encoder cache; what is not there is encoded in this step.
  // `first_token`: of the row in the batch.
  void take(Step& step, const sched::PlanRow& row, int first_token, Generation& g);
  // After the last row: packs what the step encodes into tower calls. False: nothing.
  bool pack(Step& step);
  // The step is done: others may take its rows of the cache.
  void collect(Step& step);
  // The request's first `computed` tokens are confirmed: lets go of their patches, where no preemption can want them.
  void release(Generation& g, int computed) const;
  // What made a request's logits not a number must not meet the next one.
  void forget(const Generation& g);

  // Writes its part of the figures.
  void report(EngineStats& stats) const;

 private:
  int encoder_entry(Step& step, const MediaItem& item, const Hash128& key);

  const VisionStage* stage_;      // null: no tower, and no request has pictures
  cache::EncoderCache* encoder_;  // null likewise
  HashKey secret_;
  bool may_need_again_ = true;  // a running sequence can lose its blocks, and then compute its pictures anew
  struct {
    uint64_t tower_ns = 0, tower_calls = 0, tower_items = 0, tower_patches = 0, encoder_lookups = 0, encoder_hits = 0;
  } figures_;
};

}  // namespace tern::engine
