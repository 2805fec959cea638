// Rows of a table by token id, and ids that the previous step has just sampled.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"
#include "ops/linear.h"

namespace tern::ops {

struct EmbeddingParams {
  TensorView table;  // [V, H] bf16 or f32
  TensorView ids;    // [T] int32, in [0, V)
  TensorView out;    // [T, H] bf16 or f32
  // Reads the rows from a packed weight instead of `table`: a tied output layer then needs no second copy.
  const PackedWeight* packed = nullptr;
};
Status embedding(const EmbeddingParams& params, device::Stream stream);

// ids[t] = source[t] >= 0 ? previous[source[t]] : ids[t]. `previous` holds what the step before sampled and may not
// have reached the host yet: this is what lets steps run ahead.
struct ResolveIdsParams {
  TensorView ids;       // [T] int32, in and out
  TensorView source;    // [T] int32, -1 or a row of `previous`
  TensorView previous;  // [P] int32
};
Status resolve_ids(const ResolveIdsParams& params, device::Stream stream);

// out[i] = x[rows[i]]: the hidden states whose logits are wanted.
struct GatherRowsParams {
  TensorView x;     // [T, H]
  TensorView rows;  // [L] int32
  TensorView out;   // [L, H]
};
Status gather_rows(const GatherRowsParams& params, device::Stream stream);

}  // namespace tern::ops
