// Matrices as the copy engine of Hopper sees them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/error.h"

namespace tern::cuda {

// bf16 rows in boxes of 64 values by `box_rows` rows (at most 256), 128-byte swizzle; values outside [rows, k] read as
// zero. `base` and `row_stride` (elements) are multiples of 16 bytes.
Status tensor_map(const void* base, int64_t rows, int64_t k, int64_t row_stride, int box_rows, CUtensorMap* out);

// Results in boxes of `box_columns` (a multiple of 8, at most 256) by `box_rows`, not swizzled.
Status tensor_map_plain(const void* base, int64_t rows, int64_t columns, int64_t row_stride, int box_columns,
                        int box_rows, CUtensorMap* out);

// Rows of a box of x for tiles of `tile` tokens: no more than there are, in groups of eight. What a product finds
// behind them in shared memory becomes columns that nobody stores.
constexpr int token_box(int64_t rows, int tile) { return rows < tile ? static_cast<int>((rows + 7) / 8 * 8) : tile; }

// Many matrices of one shape [rows, k], k a multiple of 64, anywhere above `base`: the third coordinate counts 128-byte
// steps from `base` to 64 values of the first row. Every matrix begins at a multiple of 128 bytes from `base`.
Status tensor_map_anywhere(const void* base, int64_t rows, int64_t row_stride, int box_rows, CUtensorMap* out);

// The same matrices in units of 16 rows: 8 rows and the 8 behind them, or, `gated`, 8 of the upper half and the 8 that
// belong to them in the lower one. n is a multiple of 16. Coordinates: 0, 0, 0, unit, plane; from `planes` on all is
// zero.
Status tensor_map_units(const void* base, int64_t n, int64_t row_stride, bool gated, int box_units, int box_planes,
                        CUtensorMap* out, int64_t planes = int64_t{1} << 31);

// bf16 rows [n, k] in boxes of 256 values of 16 rows, not swizzled: 8 rows and the 8 behind them, or, `gated`, 8 of the
// upper half and the 8 that belong to them in the lower one; values behind k read as zero. n is a multiple of 16.
// Coordinates: value, 0, 0, unit of 16 rows.
Status tensor_map_wide(const void* base, int64_t n, int64_t k, int64_t row_stride, bool gated, CUtensorMap* out);

// Stripes of weights that are codes (gemm/codes.h), `stripe_bytes` apart: `pieces` of each, `piece_bytes` long (a
// multiple of 16, at most 512), in boxes of `box_pieces` of `box_stripes`, without gaps in shared memory; what lies
// outside reads as zero. Coordinates: 0, piece, stripe.
Status tensor_map_stripes(const void* base, int piece_bytes, int64_t pieces, int64_t stripes, int64_t stripe_bytes,
                          int box_pieces, int box_stripes, CUtensorMap* out);

// Blocks of a paged cache at multiples of `block_bytes` from `base`, each of `rows` rows of `values` bf16: boxes of 64
// values by `box_rows` rows, 128-byte swizzle. Coordinates: value, row, block.
Status tensor_map_pages(const void* base, int64_t values, int64_t rows, int64_t block_bytes, int box_rows,
                        CUtensorMap* out);

// bf16 [tokens, heads, values] with strides in elements: boxes of 64 values of `box_heads` heads of `box_tokens`
// tokens, 128-byte swizzle; tokens behind the last read as zero. Coordinates: value, head, token.
Status tensor_map_heads(const void* base, int64_t values, int64_t heads, int64_t tokens, int64_t head_stride,
                        int64_t token_stride, int box_heads, int box_tokens, CUtensorMap* out);

// The same of 16 values a row, 32-byte swizzle, boxes of one head.
Status tensor_map_narrow(const void* base, int64_t values, int64_t heads, int64_t tokens, int64_t head_stride,
                         int64_t token_stride, int box_tokens, CUtensorMap* out);

}  // namespace tern::cuda
