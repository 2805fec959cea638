// Attention with Hopper's own instructions: prompt chunks over the paged cache, segments of packed rows, latent rows.
#pragma once

#include "cuda/attention_args.h"

namespace tern::cuda {

// Whether the kernel takes these arguments, and `tokens` queries are enough to fill the GPU.
bool prefill_fits(const AttentionArgs& a, int64_t tokens, device::Stream stream);
// The units it works in; the plan is made from these.
AttentionArgs prefill_units(AttentionArgs a);
// `a` as prefill_units() left it, with its plan made.
Status attention_prefill(const AttentionArgs& a, int64_t tokens, device::Stream stream);

// Of q and k before they meet: values [token][D / 2] of halves against each other. Null: as they are.
struct SegmentRotation {
  const float *cos = nullptr, *sin = nullptr;
  int64_t cos_row = 0, sin_row = 0;  // elements from token to token
};

// Segments of packed rows: whether the kernel takes them; bytes for rounded inputs of so many rows; the op itself,
// which makes its plan. A rotation needs float32 inputs.
bool segments_fit(const AttentionArgs& a, int64_t tokens, device::Stream stream);
size_t segments_bytes(int64_t rows, int heads, int dim);
Status attention_segments(AttentionArgs a, int64_t tokens, const SegmentRotation& rotation, void* rounded,
                          device::Stream stream);

// Latent attention of 512 + 64 values, all rows of a step: as for prompt chunks.
bool latent_fits(const AttentionArgs& a, device::Stream stream);
AttentionArgs latent_units(AttentionArgs a, device::Stream stream);
Status attention_latent_hopper(const AttentionArgs& a, int64_t tokens, device::Stream stream);

}  // namespace tern::cuda
