// The CPU's functions behind ops/logits.h and ops/sample.h.
#pragma once

#include "ops/logits.h"
#include "ops/sample.h"
#include "ops/thinking.h"

namespace tern::ops::cpu {

Status logit_mask(const LogitMaskParams&, device::Stream);
Status logit_bias(const LogitsParams&, device::Stream);
Status logit_min_tokens(const LogitsParams&, device::Stream);
Status logit_penalties(const LogitsParams&, device::Stream);
Status logit_bad_words(const LogitsParams&, device::Stream);
Status slot_reset(const SlotArrays&, int slot, device::Stream);
Status slot_mark(const SlotMarkParams&, device::Stream);
Status sample(const SampleParams&, device::Stream);
size_t sample_workspace(device::Stream, int64_t vocab);
Status token_logprobs(const LogprobParams&, device::Stream);
Status capture_logits(const CaptureParams&, device::Stream);
Status thinking_force(const LogitsParams&, device::Stream);
Status thinking_advance(const ThinkingParams&, device::Stream);

inline void mark_token(const SlotArrays& s, int slot, int32_t id, bool output) {
  s.seen[slot * seen_words(s.vocab) + id / 64] |= uint64_t{1} << (id % 64);
  if (output) ++s.counts[slot * s.vocab + id];
}

}  // namespace tern::ops::cpu
