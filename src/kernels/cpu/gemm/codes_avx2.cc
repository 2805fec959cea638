#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_tables.h"

namespace tern::kernels {
namespace {

struct C {
  using I = __m256i;
  using F = __m256;
  static constexpr int W = 8;
  static inline I load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static inline void store(void* p, I v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  static inline F load_float(const float* p) { return _mm256_loadu_ps(p); }
  static inline void store_float(float* p, F v) { _mm256_storeu_ps(p, v); }
  static inline I set(int v) { return _mm256_set1_epi32(v); }
  static inline I bits(F v) { return _mm256_castps_si256(v); }
  static inline F as_float(I v) { return _mm256_castsi256_ps(v); }
  static inline F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  static inline I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
  static inline I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  template <int N>
  static inline I left(I v) {
    return _mm256_slli_epi32(v, N);
  }
  template <int N>
  static inline I right(I v) {
    return _mm256_srli_epi32(v, N);
  }
  template <int N>
  static inline I right_signed(I v) {
    return _mm256_srai_epi32(v, N);
  }
  static inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static inline F add(F a, F b) { return _mm256_add_ps(a, b); }
  static inline F broadcast(float v) { return _mm256_set1_ps(v); }
  static inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  // bf16 of 0 to 7 and -8 to -1, by the byte.
  static inline I low_bytes() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, 0, 64, -128, -96, -64, -32, 0, -32, -64, -96, -128, 64, 0, -128));
  }
  static inline I high_bytes() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 63, 64, 64, 64, 64, 64, 64, -63, -64, -64, -64, -64, -64, -64, -65));
  }
  static inline I look_up(I table, I index) { return _mm256_shuffle_epi8(table, index); }
  static inline I weave_low(I a, I b) { return _mm256_unpacklo_epi8(a, b); }
  static inline I weave_high(I a, I b) { return _mm256_unpackhi_epi8(a, b); }
  static inline I even_words(I a, I b) { return bits(_mm256_shuffle_ps(as_float(a), as_float(b), 0x88)); }
  static inline I odd_words(I a, I b) { return bits(_mm256_shuffle_ps(as_float(a), as_float(b), 0xdd)); }
};

}  // namespace
}  // namespace tern::kernels

// After C:
#include "kernels/cpu/gemm/codes_simd.inc"

namespace tern::kernels {
namespace {

inline __m256 value8(const void* x, int bf16, int64_t i) {
  if (bf16 == 0) return _mm256_loadu_ps(static_cast<const float*>(x) + i);
  const void* at = static_cast<const uint16_t*>(x) + i;
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(at)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

// Eight values from i on, of which `left` exist: the rest of a row through a padded copy.
inline __m256 values_of(const void* x, int bf16, int64_t i, int64_t left) {
  if (left >= 8) return value8(x, bf16, i);
  float padded[8] = {};
  for (int64_t j = 0; j < left; ++j) {
    if (bf16 != 0) {
      const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(x)[i + j]) << 16;
      __builtin_memcpy(&padded[j], &bits, 4);
    } else {
      padded[j] = static_cast<const float*>(x)[i + j];
    }
  }
  return _mm256_loadu_ps(padded);
}

// The low bytes of eight words, or of the first `left`.
inline void store_bytes(uint8_t* to, __m256i words, int64_t left) {
  const __m256i low = _mm256_and_si256(words, _mm256_set1_epi32(0xff));
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  uint8_t out[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(halves, halves));
  if (left >= 8) {
    __builtin_memcpy(to, out, 8);
  } else {
    __builtin_memcpy(to, out, static_cast<size_t>(left));
  }
}

void encode_int(const void* x, int bf16, float scale, float bound, uint8_t* codes, int64_t n) {
  const __m256 s = _mm256_set1_ps(scale == 0.0f ? 1.0f : scale), top = _mm256_set1_ps(scale == 0.0f ? 0.0f : bound);
  const __m256 bottom = _mm256_sub_ps(_mm256_setzero_ps(), top);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 v = _mm256_div_ps(values_of(x, bf16, i, n - i), s);
    const __m256 q = _mm256_max_ps(_mm256_min_ps(v, top), bottom);
    store_bytes(codes + i, _mm256_cvtps_epi32(q), n - i);  // to nearest, ties to even
  }
}

// A mantissa of three bits is rounded in the bits of the float; what lies below 2^-6 is counted in steps of 2^-9.
void encode_e4m3(const void* x, int bf16, float scale, uint8_t* codes, int64_t n) {
  if (scale == 0.0f) {
    __builtin_memset(codes, 0, static_cast<size_t>(n));
    return;
  }
  const __m256 s = _mm256_set1_ps(scale), most = _mm256_set1_ps(448.0f), small = _mm256_set1_ps(0x1p-6f);
  const __m256 steps = _mm256_set1_ps(0x1p9f), sign = _mm256_set1_ps(-0.0f);
  const __m256i half = _mm256_set1_epi32(0x7ffff), one = _mm256_set1_epi32(1), bias = _mm256_set1_epi32((127 - 7) << 3);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 v = _mm256_div_ps(values_of(x, bf16, i, n - i), s);
    const __m256 a = _mm256_min_ps(_mm256_andnot_ps(sign, v), most);
    const __m256i u = _mm256_castps_si256(a), even = _mm256_and_si256(_mm256_srli_epi32(u, 20), one);
    const __m256i up = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(half, even)), 20);
    const __m256 normal = _mm256_castsi256_ps(_mm256_sub_epi32(up, bias));
    const __m256 least = _mm256_castsi256_ps(_mm256_cvtps_epi32(_mm256_mul_ps(a, steps)));
    const __m256 code = _mm256_blendv_ps(normal, least, _mm256_cmp_ps(a, small, _CMP_LT_OQ));
    const __m256i negative = _mm256_slli_epi32(_mm256_srli_epi32(_mm256_castps_si256(v), 31), 7);
    store_bytes(codes + i, _mm256_or_si256(_mm256_castps_si256(code), negative), n - i);
  }
}

}  // namespace

void fill_codes_avx2(KernelTable* t) {
  t->codes.encode_int = encode_int;
  t->codes.encode_e4m3 = encode_e4m3;
  t->codes.widen_int8 = widen_int8;
  t->codes.widen_e4m3 = widen_e4m3;
  t->codes.widen_tile_int8 = widen_tile_int8;
  t->codes.widen_tile_e4m3 = widen_tile_e4m3;
  t->codes.widen_int4 = widen_int4;
  t->codes.sum_row = sum_row;
  t->codes.scale_sums = scale_sums;
}

}  // namespace tern::kernels
