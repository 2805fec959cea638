// Vectors of 16 floats for the kernels in gemm_simd.inc and rows_simd.inc. Everything has internal linkage: this header
// is compiled for AVX-512 and nothing of it may be picked for another file.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace tern::kernels {
namespace {

struct V {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kWide = 4;    // vectors per row in a block of up to 6 rows: 24 sums, 4 weights, 1 value
  static constexpr int kSingle = 4;  // vectors when there is one row

  static inline __mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static inline F zero() { return _mm512_setzero_ps(); }
  static inline F set1(float v) { return _mm512_set1_ps(v); }
  static inline F load(const float* p) { return _mm512_loadu_ps(p); }
  static inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
  static inline F max(F a, F b) { return _mm512_max_ps(a, b); }
  static inline F sqrt(F a) { return _mm512_sqrt_ps(a); }

  // The first or second values of 16 bf16 pairs.
  static inline F pair_low(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
  }
  static inline F pair_high(const uint16_t* p) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static inline F widen(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }
  static inline F load_bf16(const uint16_t* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
#if defined(TERN_CPU_BF16)
  // As below, except that values too small for normal float32 become zero.
  static inline __m256i narrow(F v) { return (__m256i)_mm512_cvtneps_pbh(v); }
  static inline __m512i rounded(F v) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow(v)), 16); }
#else
  // Rounds to bf16, to nearest and ties to even; the result is the upper half of each lane, NaN stays NaN.
  static inline __m512i rounded(F v) {
    const __m512i u = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_and_si512(_mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000)),
                            _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  static inline __m256i narrow(F v) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(v), 16)); }
#endif
  static inline F round_bf16(F v) { return _mm512_castsi512_ps(rounded(v)); }
  static inline void store_bf16(uint16_t* p, F v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v)); }
  // 16 bf16 pairs from their rounded halves.
  static inline void store_pairs(uint16_t* p, F low, F high) {
    _mm512_storeu_si512(p, _mm512_or_si512(rounded(high), _mm512_srli_epi32(rounded(low), 16)));
  }
  static inline F load_part(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static inline void store_part(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, first(n), v); }
  static inline F load_bf16_part(const uint16_t* p, int64_t n) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }
  static inline void store_bf16_part(uint16_t* p, F v, int64_t n) { _mm256_mask_storeu_epi16(p, first(n), narrow(v)); }
  // Lanes below n keep their value, the others get `other`.
  static inline F keep(F v, int64_t n, F other) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(n >= 16 ? 0xffff : first(n)), other, v);
  }
  static inline float sum(F v) { return _mm512_reduce_add_ps(v); }
  static inline float top(F v) { return _mm512_reduce_max_ps(v); }
  static inline F nearest(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // v * 2^n for whole n.
  static inline F scale2(F v, F n) { return _mm512_scalef_ps(v, n); }
};

}  // namespace
}  // namespace tern::kernels
