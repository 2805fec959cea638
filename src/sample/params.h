// From what a request says to what a slot holds.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/sampling_params.h"
#include "ops/thinking.h"

namespace tern::sample {

// Sizes of the lists a slot has room for.
struct SlotCapacity {
  int stop_ids = 128;
  int logit_bias = 1024;
  int bad_words = 1024;
  int thinking = 128;  // ids that end reasoning: the mark, and what is forced
};

// Numbers that are not numbers or out of range (fastdeploy.md 3.1), ids outside the vocabulary, lists longer than
// a slot holds, more log-probs than allowed (max_logprobs < 0: as many as the vocabulary). `stop_ids`: end of text and
// stop ids together.
Status validate(const SamplingParams& params, size_t stop_ids, int64_t vocab, int max_logprobs,
                const SlotCapacity& capacity);

// Greedy sampling becomes temperature 1 (fastdeploy.md 3.3).
ops::SlotParams slot_params(const SamplingParams& params, int stop_ids);

// The ids that end a request's reasoning, as ops take them; valid as long as `params`.
ops::ThinkingIds thinking_ids(const SamplingParams& params);

// Processors a sequence needs, as bits (sample/processors.h); min-tokens only while the output is shorter.
uint32_t wanted_processors(const SamplingParams& params);

}  // namespace tern::sample
