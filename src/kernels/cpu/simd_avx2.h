// Vectors of 8 floats for the kernels in gemm_simd.inc and rows_simd.inc. Everything has internal linkage: this header
// is compiled for AVX2 and nothing of it may be picked for another file.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace tern::kernels {
namespace {

struct V {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kWide = 2;    // vectors per row in a block of up to 6 rows: 12 sums, 2 weights, 1 value
  static constexpr int kSingle = 8;  // vectors when there is one row

  static inline F zero() { return _mm256_setzero_ps(); }
  static inline F set1(float v) { return _mm256_set1_ps(v); }
  static inline F load(const float* p) { return _mm256_loadu_ps(p); }
  static inline void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static inline F add(F a, F b) { return _mm256_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static inline F div(F a, F b) { return _mm256_div_ps(a, b); }
  static inline F max(F a, F b) { return _mm256_max_ps(a, b); }
  static inline F sqrt(F a) { return _mm256_sqrt_ps(a); }

  // The first or second values of 8 bf16 pairs.
  static inline F pair_low(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16));
  }
  static inline F pair_high(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                                                _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static inline F load_bf16(const uint16_t* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
  }
  // Rounds to bf16, to nearest and ties to even; the result is the upper half of each lane, NaN stays NaN.
  static inline __m256i rounded(F v) {
    const __m256i u = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_and_si256(_mm256_blendv_epi8(r, quiet, nan), _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  static inline F round_bf16(F v) { return _mm256_castsi256_ps(rounded(v)); }
  static inline void store_bf16(uint16_t* p, F v) {
    const __m256i u = _mm256_srli_epi32(rounded(v), 16);
    const __m128i w = _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), w);
  }
  // 8 bf16 pairs from their rounded halves.
  static inline void store_pairs(uint16_t* p, F low, F high) {
    const __m256i v = _mm256_or_si256(rounded(high), _mm256_srli_epi32(rounded(low), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }

  // Parts of n < 8 values go through memory: only row ends come here.
  static inline F load_part(const float* p, int64_t n) {
    float t[8] = {};
    for (int64_t i = 0; i < n; ++i) t[i] = p[i];
    return load(t);
  }
  static inline void store_part(float* p, F v, int64_t n) {
    float t[8];
    store(t, v);
    for (int64_t i = 0; i < n; ++i) p[i] = t[i];
  }
  static inline F load_bf16_part(const uint16_t* p, int64_t n) {
    uint16_t t[8] = {};
    for (int64_t i = 0; i < n; ++i) t[i] = p[i];
    return load_bf16(t);
  }
  static inline void store_bf16_part(uint16_t* p, F v, int64_t n) {
    uint16_t t[8];
    store_bf16(t, v);
    for (int64_t i = 0; i < n; ++i) p[i] = t[i];
  }
  // Lanes below n keep their value, the others get `other`.
  static inline F keep(F v, int64_t n, F other) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(m));
  }
  static inline float sum(F v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static inline float top(F v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  static inline F nearest(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // v * 2^n for whole n in [-127, 127]; zero below.
  static inline F scale2(F v, F n) {
    n = max(n, set1(-127.0f));
    return mul(
        v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)));
  }
};

}  // namespace
}  // namespace tern::kernels
