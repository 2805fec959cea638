// Products with weights that are codes: the kernels that choice_codes.h names, and what else is done with such weights.
#pragma once

#include <cstdint>

#include "cuda/gemm/codes.h"
#include "cuda/gemm/codes/choice_codes.h"
#include "cuda/gemm/gemm.h"

namespace tern::cuda {

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
// Hopper's, one file per kind (codes/sm90): int4 with scales of 32 columns, of 64 or 128.
Status codes_wgmma_int8(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream);
Status codes_wgmma_int4(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream);
Status codes_wgmma_int4_32(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream);
Status codes_wgmma_int4_64(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream);
Status codes_wgmma_e4m3(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream);

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
