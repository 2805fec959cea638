// Attention of decoding rows, and with Hopper's own instructions: prompt chunks over the paged cache, segments of
// packed rows, latent rows. What each can take: choice.h.
#pragma once

#include "cuda/attention/choice.h"

namespace tern::cuda {

// Decoding rows: the units of the chosen kernel, which the plan is made from; `a` as that left it, with its plan made.
AttentionArgs decode_portable_units(AttentionArgs a, const AttentionChoice& choice, device::Stream stream);
Status attention_decode_portable(const AttentionArgs& a, device::Stream stream);
AttentionArgs decode_sm90_units(AttentionArgs a, const AttentionChoice& choice, device::Stream stream);
Status attention_decode_sm90(const AttentionArgs& a, DecodeKernel kernel, device::Stream stream);
// Asks the driver once per GPU and size of heads.
void count_decode_clusters(const AttentionArgs& a, bool wide, AttentionFacts& facts, device::Stream stream);

// Prompt chunks: the units it works in; the plan is made from these.
AttentionArgs prefill_units(AttentionArgs a);
// `a` as prefill_units() left it, with its plan made.
Status attention_prefill(const AttentionArgs& a, int64_t tokens, device::Stream stream);

// Of q and k before they meet: values [token][D / 2] of halves against each other.
struct SegmentRotation {
  const float *cos = nullptr, *sin = nullptr;
  int64_t cos_row = 0, sin_row = 0;  // elements from token to token
};
// Whether the kernels below take these heads, which must be bf16. `rotation` without values: nothing turns.
bool rotate_fits(const AttentionArgs& a, const SegmentRotation& rotation);
// q and k in their places.
Status rotate(const AttentionArgs& a, const SegmentRotation& rotation, int64_t tokens, device::Stream stream);

// Heads of 65 to 80 values straddle lines of memory, and what is short of 64 values more is read for nothing: they are
// laid apart, [heads, tokens] rows of 64 values at multiples of 128 bytes and rows of the rest. The bytes that takes
// (0: other heads stay where they are); turns q and k on the way, and points `a` at the first rows.
struct SegmentTails {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
};
size_t apart_bytes(int64_t tokens, int heads, int dim);
Status lay_apart(AttentionArgs& a, const SegmentRotation& rotation, int64_t tokens, void* to, SegmentTails* tails,
                 device::Stream stream);

// Segments of packed rows; makes its plan unless it is there. `apart`: apart_bytes().
Status attention_segments(AttentionArgs a, const SegmentRotation& rotation, int64_t tokens, void* apart,
                          device::Stream stream);

// Latent attention of 512 + 64 values, all rows of a step: as for prompt chunks.
AttentionArgs latent_units(AttentionArgs a, device::Stream stream);
Status attention_mla_sm90(const AttentionArgs& a, int64_t tokens, device::Stream stream);

}  // namespace tern::cuda
