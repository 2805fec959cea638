#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx512.h"
// After V:
#include "kernels/cpu/gemm/gemm_simd.inc"
#include "kernels/cpu/simd_tables.h"

namespace tern::kernels {
namespace {

void scatter16(const uint16_t* a, uint16_t* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i)));
    _mm512_mask_storeu_epi16(dst + 2 * i, 0x55555555u, v);
  }
  for (; i < n; ++i) dst[2 * i] = a[i];
}

}  // namespace

void fill_avx512(KernelTable* t) {
  fill_rows_avx512(t);
  fill_codes_avx512(t);
  t->gemm_f32_bf16 = gemm<F32Bf16>;
  t->gemm_f32 = gemm<F32F32>;
  t->scatter16 = scatter16;
  t->stream_rows = 6;
}

}  // namespace tern::kernels
