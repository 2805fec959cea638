// What the engine thread keeps of a request from its arrival to its last delta.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "engine/request.h"

namespace tern::engine {

struct Generation {
  Request request;
  std::vector<int32_t> stop_ids;  // end of text (unless ignored) first, then stop ids; all inside the vocabulary
  std::vector<int32_t> output;    // confirmed tokens; memory for all of them is reserved at admission
  int prompt = 0;
  uint32_t processors = 0;  // bits wanted at any time (sample/processors.h)
  bool guided = false;      // rows wait for a host mask
  bool admitted = false;
  bool ended = false;               // its last delta is out; kept while open steps name it
  int open_rows = 0;                // rows in launched and not yet collected steps
  int sure_tokens = 0;              // tokens in a row above the early-stop threshold
  std::vector<Hash128> media_keys;  // of request.media in the encoder cache
  size_t media_done = 0;            // items whose patches have been let go
  int cached_tokens = 0, preemptions = 0;
  RequestTimes times;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
};

}  // namespace tern::engine
