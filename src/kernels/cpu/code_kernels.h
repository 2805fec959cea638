// Kernels of quantized weights: from values to codes, and from codes to what the products read. Plain structs and
// function pointers only, as in kernel_table.h.
#pragma once

#include <stdint.h>

namespace tern::kernels {

// acc[r, c] (+)= sum over k of x[r, k] * code[k, c] over 64 columns, for at most kCodeRows rows: what gemm_bf16 makes
// of the widened codes, bit by bit.
inline constexpr int64_t kCodeRows = 6;
struct CodeGemmArgs {
  const uint16_t* x;  // [rows, K] bf16
  int64_t ldx;        // elements
  const void* codes;  // whole steps
  int64_t pairs;      // of k; the last step may hold more
  float* acc;         // [rows, 64]
  int64_t rows;
  int accumulate;  // 0: acc starts from zero
};

// `steps` of four codes of each of `cols` columns, side by side, as two steps of bf16 pairs each; exact.
struct WidenTile {
  const void* codes;
  int64_t ld;  // bytes from one step to the next
  uint16_t* pairs;
  int64_t ld_pairs;     // elements from one step of pairs to the next
  int64_t steps, cols;  // cols: a multiple of 16
};

struct CodeKernels {
  // n values (bf16 or f32) to codes: value / scale, to nearest and ties to even, within +-bound; scale 0: zeros.
  void (*encode_int)(const void* x, int bf16, float scale, float bound, uint8_t* codes, int64_t n);
  // The same to e4m3 (1, 4 and 3 bits, bias 7), within +-448.
  void (*encode_e4m3)(const void* x, int bf16, float scale, uint8_t* codes, int64_t n);
  // `steps` of 64 columns of four codes as the bf16 pairs that gemm_bf16 and gemm_f32_bf16 read; exact.
  void (*widen_int8)(const void* codes, uint16_t* pairs, int64_t steps);
  void (*widen_e4m3)(const void* codes, uint16_t* pairs, int64_t steps);
  void (*widen_tile_int8)(const WidenTile*);
  void (*widen_tile_e4m3)(const WidenTile*);
  // As widen_int8, for steps of eight codes: the first four in the lower halves of the bytes, in two's complement.
  void (*widen_int4)(const void* codes, uint16_t* pairs, int64_t steps);
  // The sum of n values (bf16 or f32).
  float (*sum_row)(const void* x, int bf16, int64_t n);
  // Null where codes are better widened first.
  void (*gemm_int8)(const CodeGemmArgs*);
  void (*gemm_e4m3)(const CodeGemmArgs*);
  void (*gemm_int4)(const CodeGemmArgs*);
  // sum[r, c] (+)= (part[r, c] - zero[c] * x_sum[r]) * scale[c] over 64 columns, where zero may be null: no such term.
  // accumulate 0: sum starts from zero.
  void (*scale_sums)(const float* part, const float* scale, const float* zero, const float* x_sum, float* sum,
                     int64_t rows, int accumulate);
};

}  // namespace tern::kernels
