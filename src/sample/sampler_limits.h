// Sizes of a step's sampling, and what of it is wanted at all: fixed once the engine has started.
#pragma once

#include <cstdint>

#include "base/sampling_params.h"
#include "sample/params.h"

namespace tern::sample {

struct SamplerLimits {
  int slots = 0;           // max_num_seqs
  int max_rows = 0;        // tokens sampled in a step
  int max_logit_rows = 0;  // logit rows of a step
  int64_t vocab = 0;       // logit columns that count; further ones are never sampled
  int max_logprobs = 0;    // per row; at most vocab
  bool masks = false;      // rows may wait for host masks
  bool probs = false;      // probabilities of sampled tokens are wanted (repetition early stop)
  bool entropy = false;    // of what tokens are drawn from may be asked for
  bool kept = false;       // and the ids that truncation leaves
  LogprobsMode mode = LogprobsMode::kRawLogprobs;
  SlotCapacity capacity;
};

}  // namespace tern::sample
