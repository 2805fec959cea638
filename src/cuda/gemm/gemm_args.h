// What a product is given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/gemm/codes.h"

namespace tern::cuda {

// Of a norm that the products around it do: tokens, and sums of squares of each, at most; experts of a product before
// it.
inline constexpr int64_t kNormFusedRows = 64, kNormFusedParts = 1024;
inline constexpr int kNormFusedExperts = 256;
inline constexpr int kNormFusedTurns = 2;  // a product may read the sums before a norm and leave those behind the next
inline constexpr size_t kNormSquaresBytes = kNormFusedTurns * kNormFusedRows * kNormFusedParts * sizeof(float);

// A norm between two products that its neighbours do (norm_fusion.h, norm_epilogue.cuh). What the first one leaves
// instead of its sums: residual + sum, that times the norm's weight, and of every so many columns the sum of squares.
struct NormAfter {
  float* residual = nullptr;  // [rows, n], in and out; null: no norm follows
  int64_t residual_row = 0;
  const void* weight = nullptr;  // [n]
  bool weight_bf16 = true;
  void* x = nullptr;  // bf16 [rows, n], not yet normed
  int64_t x_row = 0;
  float* squares = nullptr;  // [rows][parts]
  int parts = 0;
};
// What the second one, whose rows lack their scale, makes that of: k is the norm's width.
struct NormBefore {
  const float* squares = nullptr;  // null: rows are as they should be
  int parts = 0;
  float eps = 0;
};

// What becomes of the results of experts: token t has row row_of[t, j] of them for its rank j, which counts
// weights[t, j].
struct ExpertPicks {
  const int32_t* row_of = nullptr;
  int64_t row_of_row = 0;  // elements
  const float* weights = nullptr;
  int64_t weights_row = 0;
  int top_k = 0, pairs = 0;  // ranks of a token, of all tokens
  bool settled = false;      // these and the offsets were there before the kernel before this one began to write
};

// out[t, n] = sum_k x[t, k] w[n, k] (+ bias[n]).
struct Gemm {
  const void* x = nullptr;
  bool x_bf16 = true;
  int64_t x_row = 0, x_head = 0;  // strides in elements
  bool w_bf16 = true;
  int64_t w_row = 0;  // elements of a packed row: k rounded up to 8
  CodeLayout codes;   // of a weight of codes, with w_bf16 false; n 0: it is none. For gemm_codes_wgmma() alone
  const float* bias = nullptr;
  // The same in bf16, and whether gelu (tanh) follows it: cuBLASLt with bf16 results only.
  const void* short_bias = nullptr;
  bool gelu = false;
  void* out = nullptr;
  bool out_bf16 = true;
  int64_t out_row = 0, out_head = 0;
  int64_t rows = 0, n = 0, k = 0;
  // Grouped: rows [offsets[e], offsets[e + 1]) use weight e. `groups` weights; heads: one per head.
  const int32_t* offsets = nullptr;
  int groups = 1;
  bool heads = false;
  // Rows of the weight are [gate, up]: out [rows, n / 2] gets silu(gate) * up. Hopper's kernels only.
  bool gated = false;
  // Grouped: row s is x[from[s]], for kernels that gather (GroupedChoice); null: x[s].
  const int32_t* from = nullptr;
  // Parts of k are left to who reads them: [part][rows][n] without gaps. gemm_large_tile_* alone, see parts_pay().
  float* apart = nullptr;
  NormAfter after;
  NormBefore before;
};

}  // namespace tern::cuda
