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

// For a rank whose table is the part [first, first + count) of a vocabulary: local[t] = ids[t] - first where the part
// has that id, else 0. What embedding() then makes of ids that others have, clear_foreign_rows() turns into zeros; the
// sum over ranks is the embedding.
struct VocabularyIdsParams {
  TensorView ids;    // [T] int32, in [0, vocab)
  TensorView local;  // [T] int32, out
  int64_t first = 0, count = 0, vocab = 0;
};
Status vocabulary_ids(const VocabularyIdsParams& params, device::Stream stream);
struct ClearForeignRowsParams {
  TensorView ids;  // [T] int32
  TensorView x;    // [T, H] bf16 or f32, in and out
  int64_t first = 0, count = 0;
};
Status clear_foreign_rows(const ClearForeignRowsParams& params, device::Stream stream);

// ids[t] = source[t] >= 0 ? previous[source[t]] : ids[t]. `previous` holds what the step before sampled and may not
// have reached the host yet: this is what lets steps run ahead. Beside it what has changed of a table since the step
// before: value changes[i][1] at place changes[i][0] of it, rows end to end; a place of -1 is none.
struct ResolveIdsParams {
  TensorView ids;       // [T] int32, in and out
  TensorView source;    // [T] int32, -1 or a row of `previous`
  TensorView previous;  // [P] int32
  TensorView changes;   // [C, 2] int32, or empty
  TensorView table;     // [R, B] int32 without gaps, or empty
};
Status resolve_ids(const ResolveIdsParams& params, device::Stream stream);
inline bool changes_fit(const ResolveIdsParams& p) {
  const auto whole = [](const TensorView& v) {
    return v.rank == 2 && v.dtype == DType::kI32 && v.data != nullptr && v.stride[0] == v.dim[1];
  };
  return whole(p.changes) && p.changes.dim[1] == 2 && whole(p.table);
}

// out[i] = x[rows[i]]: the hidden states whose logits are wanted.
struct GatherRowsParams {
  TensorView x;     // [T, H]
  TensorView rows;  // [L] int32
  TensorView out;   // [L, H]
};
Status gather_rows(const GatherRowsParams& params, device::Stream stream);

}  // namespace tern::ops
