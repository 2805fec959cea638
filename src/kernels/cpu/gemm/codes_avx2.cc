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

// Eight at a time; the rest of a row through a padded copy.
void encode_int(const void* x, int bf16, float scale, float bound, uint8_t* codes, int64_t n) {
  const __m256 s = _mm256_set1_ps(scale == 0.0f ? 1.0f : scale), top = _mm256_set1_ps(scale == 0.0f ? 0.0f : bound);
  const __m256 bottom = _mm256_sub_ps(_mm256_setzero_ps(), top);
  for (int64_t i = 0; i < n; i += 8) {
    const int64_t left = n - i < 8 ? n - i : 8;
    float padded[8] = {};
    const void* from = x;
    int64_t at = i;
    int type = bf16;
    if (left < 8) {
      for (int64_t j = 0; j < left; ++j) {
        if (bf16 != 0) {
          const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(x)[i + j]) << 16;
          __builtin_memcpy(&padded[j], &bits, 4);
        } else {
          padded[j] = static_cast<const float*>(x)[i + j];
        }
      }
      from = padded, at = 0, type = 0;
    }
    const __m256 q = _mm256_max_ps(_mm256_min_ps(_mm256_div_ps(value8(from, type, at), s), top), bottom);
    const __m256i whole = _mm256_cvtps_epi32(q);  // to nearest, ties to even
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    const __m128i bytes = _mm_packs_epi16(words, words);
    uint8_t out[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
    __builtin_memcpy(codes + i, out, static_cast<size_t>(left));
  }
}

}  // namespace

void fill_codes_avx2(KernelTable* t) {
  t->codes.encode_int = encode_int;
  t->codes.widen_int8 = widen_int8;
  t->codes.widen_e4m3 = widen_e4m3;
  t->codes.widen_tile_int8 = widen_tile_int8;
  t->codes.widen_tile_e4m3 = widen_tile_e4m3;
  t->codes.widen_int4 = widen_int4;
  t->codes.sum_row = sum_row;
  t->codes.scale_sums = scale_sums;
}

}  // namespace tern::kernels
