#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_tables.h"

namespace tern::kernels {
namespace {

struct C {
  using I = __m512i;
  using F = __m512;
  static constexpr int W = 16;
  static inline I load(const void* p) { return _mm512_loadu_si512(p); }
  static inline void store(void* p, I v) { _mm512_storeu_si512(p, v); }
  static inline F load_float(const float* p) { return _mm512_loadu_ps(p); }
  static inline void store_float(float* p, F v) { _mm512_storeu_ps(p, v); }
  static inline I set(int v) { return _mm512_set1_epi32(v); }
  static inline I bits(F v) { return _mm512_castps_si512(v); }
  static inline F as_float(I v) { return _mm512_castsi512_ps(v); }
  static inline F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  static inline I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  static inline I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  template <int N>
  static inline I left(I v) {
    return _mm512_slli_epi32(v, N);
  }
  template <int N>
  static inline I right(I v) {
    return _mm512_srli_epi32(v, N);
  }
  template <int N>
  static inline I right_signed(I v) {
    return _mm512_srai_epi32(v, N);
  }
  static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F broadcast(float v) { return _mm512_set1_ps(v); }
  static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // bf16 of 0 to 7 and -8 to -1, by the byte.
  static inline I low_bytes() {
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -128, 0, 64, -128, -96, -64, -32, 0, -32, -64, -96, -128, 64, 0, -128));
  }
  static inline I high_bytes() {
    return _mm512_broadcast_i32x4(_mm_setr_epi8(0, 63, 64, 64, 64, 64, 64, 64, -63, -64, -64, -64, -64, -64, -64, -65));
  }
  static inline I look_up(I table, I index) { return _mm512_shuffle_epi8(table, index); }
  static inline I weave_low(I a, I b) { return _mm512_unpacklo_epi8(a, b); }
  static inline I weave_high(I a, I b) { return _mm512_unpackhi_epi8(a, b); }
  static inline I even_words(I a, I b) { return bits(_mm512_shuffle_ps(as_float(a), as_float(b), 0x88)); }
  static inline I odd_words(I a, I b) { return bits(_mm512_shuffle_ps(as_float(a), as_float(b), 0xdd)); }
};

}  // namespace
}  // namespace tern::kernels

// After C:
#include "kernels/cpu/gemm/codes_simd.inc"

namespace tern::kernels {

void fill_codes_avx512(KernelTable* t) {
  t->codes.widen_int8 = widen_int8;
  t->codes.widen_e4m3 = widen_e4m3;
  t->codes.widen_tile_int8 = widen_tile_int8;
  t->codes.widen_tile_e4m3 = widen_tile_e4m3;
  t->codes.widen_int4 = widen_int4;
  t->codes.sum_row = sum_row;
  t->codes.scale_sums = scale_sums;
}

}  // namespace tern::kernels
