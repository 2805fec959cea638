// What the engine thread keeps of a request from its arrival to its last delta.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "base/memory/prefetch.h"
#include "engine/request.h"
#include "ops/logits.h"

namespace tern::engine {

class Guide;

struct alignas(64) Generation {
  // What every step touches comes first: one cache line to plan, three to take a token. Values of the request among it
  // are copied here by open().
  RequestId id = 0;
  int prompt = 0;
  uint32_t processors = 0;  // bits wanted at any time (sample/processors.h)
  int32_t min_tokens = 0, max_tokens = 0;
  int32_t rope_delta = 0;
  int sure_tokens = 0;  // tokens in a row above the early-stop threshold
  int cached_tokens = 0, preemptions = 0;
  bool guided = false;   // has a grammar
  bool masked = false;   // which has begun: rows wait for masks
  bool thought = false;  // reasoning is known to be over, or there is none
  bool recount = false;  // the slot has counted other tokens than the output has
  bool admitted = false;
  bool ended = false;             // its last delta is out; kept while open steps name it
  bool positioned = false;        // positions are given
  bool pictured = false;          // has media
  bool scored = false;            // asks for log-probs, of the prompt or the answer
  bool drawn_from = false;        // what its tokens are drawn from is wanted
  bool stops_by_words = false;    // has stop sequences
  std::vector<int32_t> output;    // confirmed tokens; memory for all of them is reserved at admission
  std::vector<int32_t> stop_ids;  // end of text (unless ignored) first, then stop ids; all inside the vocabulary
  RequestTimes times;
  ops::ThinkingState thinking;   // of the output
  int32_t grammar_begin = 0;     // tokens of the output before the grammar
  std::shared_ptr<Guide> guide;  // null: not guided, or ended

  Request request;
  std::vector<Hash128> media_keys;  // of request.media in the encoder cache
  size_t media_done = 0;            // items whose patches have been let go
  int64_t kept_ids = 0;             // that its tokens were drawn from
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  std::vector<Preemption> interruptions;
  std::vector<float> pooled;       // of a pooling model: the rows computed so far
  std::vector<double> pooled_sum;  // PooledRows::kMean: of the prompt's first `pooled_count` rows
  int32_t pooled_count = 0;
};

// Asks for the first lines of it: cold after a long step.
inline void prefetch(const Generation& g, size_t lines) { prefetch_memory(&g, 64 * lines); }

}  // namespace tern::engine
