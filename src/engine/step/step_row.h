// How a row of a step's plan maps to what was asked of the sampler.
#pragma once

#include "engine/generation.h"

namespace tern::engine {

struct StepRow {
  Generation* generation = nullptr;
  int sample_row = -1;       // number in the sampling batch; -1: the row samples nothing
  int mask = -1;             // number in StepMasks; -1: waits for none
  int logprobs = -1;         // request number of the sampled token's log-probs
  int facts = -1;            // number of what the token is drawn from
  int prompt_logprobs = -1;  // request number of the first scored prompt token of this row
  int prompt_scored = 0;     // how many follow it
};

}  // namespace tern::engine
