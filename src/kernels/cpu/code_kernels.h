// Kernels of quantized weights: from values to codes, and from codes to what the products read. Plain structs and
// function pointers only, as in kernel_table.h.
#pragma once

#include <stdint.h>

namespace tern::kernels {

struct CodeKernels {
  // n values (bf16 or f32) to codes: value / scale, to nearest and ties to even, within +-bound; scale 0: zeros.
  void (*encode_int)(const void* x, int bf16, float scale, float bound, uint8_t* codes, int64_t n);
  // The same to e4m3 (1, 4 and 3 bits, bias 7), within +-448.
  void (*encode_e4m3)(const void* x, int bf16, float scale, uint8_t* codes, int64_t n);
  // `steps` of 64 columns of four codes as the bf16 pairs that gemm_bf16 and gemm_f32_bf16 read; exact.
  void (*widen_int8)(const void* codes, uint16_t* pairs, int64_t steps);
  void (*widen_e4m3)(const void* codes, uint16_t* pairs, int64_t steps);
  // The same for steps of eight codes: the first four in the lower halves of the bytes, in two's complement.
  void (*widen_int4)(const void* codes, uint16_t* pairs, int64_t steps);
  // sum[r, c] (+)= part[r, c] * scale[c] over 64 columns; accumulate 0: sum starts from zero.
  void (*scale_sums)(const float* part, const float* scale, float* sum, int64_t rows, int accumulate);
};

}  // namespace tern::kernels
