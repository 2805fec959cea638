#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx2.h"
// After V:
#include "kernels/cpu/gemm/gemm_simd.inc"
#include "kernels/cpu/simd_tables.h"

namespace tern::kernels {
namespace {

// 8 x 8 words.
inline void transpose8(const char* src, int64_t stride, uint32_t* dst, int64_t ld) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(src + i * stride));
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(reinterpret_cast<float*>(dst + i * ld), _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(reinterpret_cast<float*>(dst + (i + 4) * ld), _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

void transpose32(const void* src, int64_t stride, uint32_t* dst, int64_t ld, int64_t rows, int64_t cols) {
  const char* p = static_cast<const char*>(src);
  const int64_t whole_rows = rows / 8 * 8, whole_cols = cols / 8 * 8;
  for (int64_t c = 0; c < whole_cols; c += 8) {
    for (int64_t r = 0; r < whole_rows; r += 8) transpose8(p + r * stride + 4 * c, stride, dst + c * ld + r, ld);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c) {
      __builtin_memcpy(dst + c * ld + r, p + r * stride + 4 * c, 4);
    }
  }
}

void interleave16(const uint16_t* a, const uint16_t* b, uint16_t* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + i));
    const __m256i lo = _mm256_unpacklo_epi16(x, y), hi = _mm256_unpackhi_epi16(x, y);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + 2 * i), _mm256_permute2x128_si256(lo, hi, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + 2 * i + 16), _mm256_permute2x128_si256(lo, hi, 0x31));
  }
  for (; i < n; ++i) dst[2 * i] = a[i], dst[2 * i + 1] = b[i];
}

}  // namespace

void fill_avx2(KernelTable* t) {
  fill_rows_avx2(t);
  fill_codes_avx2(t);
  t->gemm_f32_bf16 = gemm<F32Bf16>;
  t->gemm_f32 = gemm<F32F32>;
  t->transpose32 = transpose32;
  t->interleave16 = interleave16;
  t->stream_rows = 1;
}

}  // namespace tern::kernels
