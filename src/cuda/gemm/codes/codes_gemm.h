// Products with weights that are codes: what they are given, and which kernel takes which.
#pragma once

#include <cstdint>

#include "cuda/gemm/codes/codes.h"
#include "cuda/gemm/gemm.h"

namespace tern::cuda {

// out[t, n] = sum_k x[t, k] w[n, k] (+ bias[n]), or silu of the first half of n times the second.
struct CodeGemm {
  CodeLayout w;
  const void* x = nullptr;
  bool x_bf16 = true;
  int64_t x_row = 0, x_head = 0;  // strides in elements
  const float* bias = nullptr;
  void* out = nullptr;
  bool out_bf16 = true;
  int64_t out_row = 0, out_head = 0;
  int64_t rows = 0;
  // As in Gemm: rows [offsets[e], offsets[e + 1]) use weight e; row s is x[from[s]] where that is given.
  const int32_t* offsets = nullptr;
  const int32_t* from = nullptr;
  int groups = 1;
  bool heads = false;
  bool gated = false;
};

// Blocks of four or eight warps; tokens of a tile, and weight rows.
enum class CodeTile : uint8_t {
  kSimple,  // any types
  kFew8,
  kFew16,
  kFew32,
  kFew64,  // 64 rows of the weight; warps share k
  kSmall8,
  kSmall16,
  kSmall32,
  kSmall64,  // 32 rows: small weights
  kFixed8,
  kFixed64,  // one chain per value, the same for any number of tokens
};

// From shapes, mode and device alone. Products that bfloat16 tensor cores cannot read take kSimple.
CodeTile choose_codes(const CodeGemm& g, device::Stream stream);
// Whether the gate can be done behind the product in one kernel.
bool codes_gate_fits(const CodeGemm& g, device::Stream stream);
// Whether the weight is widened first (runtime/wide_room.h), for the kernels of bfloat16 weights: many rows.
bool widen_first(const CodeGemm& g, device::Stream stream);

// `weights`: host array of `groups` device pointers.
Status gemm_codes(const CodeGemm& g, const void* const* weights, device::Stream stream);
Status gemm_codes_simple(const CodeGemm& g, const void* const* weights, device::Stream stream);
// One file per kind, because they compile for long.
Status launch_codes_int8(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);
Status launch_codes_int8_groups(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);
Status launch_codes_int8_zeros(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);
Status launch_codes_int4_zeros(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);
Status launch_codes_int4(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);
Status launch_codes_int4_groups(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);
Status launch_codes_e4m3(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);
Status launch_codes_e4m3_blocks(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream);

// Rows ids[i] of a weight times their scales.
Status codes_rows(const CodeLayout& layout, const void* weight, const TensorView& ids, const TensorView& out,
                  device::Stream stream);

// Stripes [begin, end) as bfloat16 rows of `row` values, zero beyond k; times their scales, or the codes as they are.
Status widen_codes(const CodeLayout& layout, const void* weight, int64_t begin, int64_t end, bool scaled, int64_t row,
                   void* out, device::Stream stream);
// out[t, n] = out[t, n] * scale[n] (+ bias[n]) for columns [16 begin, 16 begin + n): of formats with a scale per row.
Status scale_columns(const CodeLayout& layout, const void* weight, int64_t begin, const float* bias, float* out,
                     int64_t out_row, int64_t rows, int64_t n, device::Stream stream);

}  // namespace tern::cuda
