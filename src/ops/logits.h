// Logits processors: ops over rows of float32 logits, each row belonging to a slot whose wishes lie in device arrays
// (fastdeploy.md 5.1, steps 1 and 3 to 8). Every op changes logits in place and skips rows that did not ask.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::ops {

// What a slot's sequence asked for. In device memory, one per slot.
struct SlotParams {
  uint64_t seed = 0;
  float temperature = 1.0f, scale = 1.0f;  // scale = 1 / temperature
  float top_p = 1.0f, min_p = 0.0f;
  float repetition = 1.0f, frequency = 0.0f, presence = 0.0f;
  int32_t top_k = 0;
  int32_t greedy = 0;
  int32_t min_tokens = 0;
  int32_t stop_count = 0, bias_count = 0, bad_count = 0;  // entries of the lists below
  int32_t penalised = 0;                                  // a penalty is in use: seen and counts are kept
  int32_t thinking_limit = -1;                            // tokens of reasoning (ops/thinking.h); -1: none
  int32_t thinking_mark = 0, thinking_forced = 0;         // ids of each
};

// How far a slot's sequence is from the end of its reasoning.
struct ThinkingState {
  int32_t matched = 0;  // leading ids of the mark that the answer ends with; -1: reasoning is over
  int32_t forced = 0;   // ids that have been forced
};

// Device arrays indexed by slot.
struct SlotArrays {
  int slots = 0;
  int64_t vocab = 0;
  SlotParams* params = nullptr;  // [slots]
  uint64_t* seen = nullptr;      // [slots, seen_words(vocab)]: bit per token of prompt or output
  int32_t* counts = nullptr;     // [slots, vocab]: in the output
  int stop_capacity = 0, bias_capacity = 0, bad_capacity = 0;
  int32_t* stop_ids = nullptr;   // [slots, stop_capacity]: end of text and stop ids, masked by min_tokens
  int32_t* bias_ids = nullptr;   // [slots, bias_capacity]
  float* bias_values = nullptr;  // [slots, bias_capacity]
  int32_t* bad_ids = nullptr;    // [slots, bad_capacity]
  int thinking_capacity = 0;
  int32_t* thinking_ids = nullptr;           // [slots, thinking_capacity]
  ThinkingState* thinking_states = nullptr;  // [slots]
};
constexpr int64_t seen_words(int64_t vocab) { return (vocab + 63) / 64; }

// One token to be sampled.
struct SampleRow {
  int32_t logit_row = 0;  // negative: there is none, and every op skips it
  int32_t slot = 0;
  int32_t position = 0;   // absolute position the token will have
  int32_t generated = 0;  // tokens of the output before it
  int32_t draw = 0;       // further draws at one position (speculation)
  int32_t mask_row = -1;  // row of the host's masks, or none
  int32_t thinking = 0;   // not 0: near the limit of its reasoning (ops/thinking.h)
  bool is_row() const { return logit_row >= 0; }
};

struct LogitsParams {
  TensorView logits;                // [L, V] f32, in and out
  const SampleRow* rows = nullptr;  // [count], device memory
  int count = 0;
  SlotArrays slots;
};

// What "never" is where FastDeploy writes it (steps 4 and 8).
inline constexpr float kMaskedLogit = -1e10f;

// Ids whose bit is 0 become -inf. masks: [rows, words] int32 as bits, words = ceil(V / 32).
struct LogitMaskParams {
  LogitsParams rows;
  TensorView masks;
};
Status logit_mask(const LogitMaskParams& params, device::Stream stream);
Status logit_bias(const LogitsParams& params, device::Stream stream);        // += bias
Status logit_min_tokens(const LogitsParams& params, device::Stream stream);  // stop ids := -1e10 while too short
// Repetition: x < 0 ? x * a : x / a for ids of prompt or output; then x - count * b - c for ids of the output.
Status logit_penalties(const LogitsParams& params, device::Stream stream);
// := -1e10 after the division by temperature, which sample() and token_logprobs() do on the fly.
Status logit_bad_words(const LogitsParams& params, device::Stream stream);

// Clears the seen and counts arrays of a slot.
Status slot_reset(const SlotArrays& slots, int slot, device::Stream stream);
// Marks `tokens` (device memory, each in [0, vocab)) as seen by the slot's sequence; output tokens are counted too.
struct SlotMarkParams {
  SlotArrays slots;
  int slot = 0;
  const int32_t* tokens = nullptr;
  int64_t count = 0;
  bool output = false;
};
Status slot_mark(const SlotMarkParams& params, device::Stream stream);

}  // namespace tern::ops
