// What the ranks of a group exchange in a step (device/communicator.h). All ranks give the same ops in the same order;
// of a group of one rank every op is done already.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "device/communicator.h"
#include "device/stream.h"
#include "device/tensor.h"
#include "ops/norm.h"

namespace tern::ops {

// x = ((x of rank 0 + x of rank 1) + x of rank 2) + ...: in the order of ranks, so that bits depend neither on who
// comes when nor on how many rows there are.
struct AllReduceParams {
  device::Communicator communicator;
  TensorView x;  // [T, H] f32 without gaps, in and out
};
Status all_reduce(const AllReduceParams& params, device::Stream stream);

// all_reduce(), then rms_norm() of its result with a residual; a back-end that does both at once leaves reduce.x alone.
struct AllReduceNormParams {
  AllReduceParams reduce;
  RmsNormParams norm;  // x: reduce.x
};
Status all_reduce_norm(const AllReduceNormParams& params, device::Stream stream);

// Row l of `out`, on the rank that owns it, is row l of the ranks' `x` side by side: each rank brings its columns of
// all rows and gets all columns of its rows. Rows of others stay as they are.
struct AllToAllParams {
  device::Communicator communicator;
  TensorView x;                    // [L, W] f32, row stride free; W differs from rank to rank
  int64_t first = 0;               // its first column in `out`
  const int32_t* owner = nullptr;  // [L] device memory: a rank for each row; null: rank 0 owns all rows
  // [L, V] f32, row stride free; of a CPU's rank that owns nothing it may be empty, those of GPUs have one stride.
  TensorView out;
};
Status all_to_all(const AllToAllParams& params, device::Stream stream);

// Entry l of `x` becomes that of the rank that owns it, on every rank.
struct AllGatherParams {
  device::Communicator communicator;
  const int32_t* owner = nullptr;  // [L] as above
  TensorView x;                    // [L] int32 or f32, in and out
};
Status all_gather(const AllGatherParams& params, device::Stream stream);

// Rows [first[r], first[r + 1]) of `x` become those of rank r, on every rank.
struct AllGatherRowsParams {
  device::Communicator communicator;
  std::span<const int64_t> first;  // [ranks + 1], the same for all; host memory
  TensorView x;                    // [first[ranks], W] without gaps, in and out
};
Status all_gather_rows(const AllGatherRowsParams& params, device::Stream stream);

// out[l] = row first + l of the ranks' x, added up in the order of ranks, then gate(l) * shared[l]. Several ranks may
// want the same rows.
struct ReduceScatterParams {
  device::Communicator communicator;
  TensorView x;            // [N, H] f32 without gaps, N and H the same for all
  int64_t first = 0;       // of this rank
  TensorView out;          // [L, H] f32 without gaps; L may be 0
  TensorView shared;       // empty, or [L, H] f32
  TensorView shared_gate;  // empty (1), or [L] f32 logits: sigmoid is applied
};
Status reduce_scatter(const ReduceScatterParams& params, device::Stream stream);

}  // namespace tern::ops
