// gcc 12's own header reads its "undefined" registers.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/cpu/sample/sample_kernels.h"

namespace tern::kernels {
namespace {

inline __mmask16 tail_mask(int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << left) - 1u);
}

// As exp_of in sample_ref.cc, operation by operation; fused where it says so.
inline __m512 exp_of(__m512 d) {
  const __m512 magic = _mm512_set1_ps(12582912.0f), log2e = _mm512_set1_ps(1.44269504f);
  d = _mm512_max_ps(d, _mm512_set1_ps(-80.0f));
  const __m512 shifted = _mm512_fmadd_ps(d, log2e, magic);
  const __m512 n = _mm512_sub_ps(shifted, magic);
  const __m512 r = _mm512_fmsub_ps(d, log2e, n);
  __m512 p = _mm512_set1_ps(1.3264726908e-3f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.6715126604e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.5507337442e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.4022242085e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.9314697760e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
}

inline __m512i weight_of(__m512 x, __m512 scale, __m512 top) {
  const __m512 d = _mm512_sub_ps(_mm512_mul_ps(x, scale), top);
  return _mm512_cvtps_epi32(_mm512_mul_ps(exp_of(d), _mm512_set1_ps(1073741824.0f)));
}

// Adds sixteen 32-bit weights to eight 64-bit sums.
inline __m512i add_weights(__m512i sum, __m512i w) {
  sum = _mm512_add_epi64(sum, _mm512_and_si512(w, _mm512_set1_epi64(0xffffffffll)));
  return _mm512_add_epi64(sum, _mm512_srli_epi64(w, 32));
}

constexpr int64_t kChunk = 4096;

void max_scan(const float* x, int64_t n, MaxScan* out) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  float best = -__builtin_inff();
  int64_t best_chunk = 0;
  __mmask16 nan = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t end = begin + kChunk < n ? begin + kChunk : n;
    __m512 m0 = lowest, m1 = lowest;
    int64_t i = begin;
    for (; i + 32 <= end; i += 32) {
      const __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + 16);
      nan = static_cast<__mmask16>(nan | _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q));
      m0 = _mm512_max_ps(m0, a), m1 = _mm512_max_ps(m1, b);
    }
    for (; i < end; i += 16) {
      const __m512 a = _mm512_mask_loadu_ps(lowest, tail_mask(end - i), x + i);
      nan = static_cast<__mmask16>(nan | _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q));
      m0 = _mm512_max_ps(m0, a);
    }
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(m0, m1));
    if (top > best) best = top, best_chunk = begin;
  }
  out->max = best, out->index = 0, out->nan = nan != 0;
  if (nan != 0 || best == -__builtin_inff()) return;
  for (int64_t i = best_chunk; i < n; i += 16) {
    const __mmask16 valid = tail_mask(n - i);
    const __m512 a = _mm512_mask_loadu_ps(lowest, valid, x + i);
    const __mmask16 hit = _mm512_mask_cmp_ps_mask(valid, a, _mm512_set1_ps(best), _CMP_EQ_OQ);
    if (hit != 0) {
      out->index = static_cast<int32_t>(i + __builtin_ctz(hit));
      return;
    }
  }
}

void mass_scan(MassScan* s) {
  const __m512 scale = _mm512_set1_ps(s->scale), top = _mm512_set1_ps(s->top);
  const __m512 cut0 = _mm512_set1_ps(s->cut[0]), cut1 = _mm512_set1_ps(s->cut[1]), cut2 = _mm512_set1_ps(s->cut[2]);
  __m512i all = _mm512_setzero_si512(), sum0 = all, sum1 = all, sum2 = all;
  int64_t count0 = 0, count1 = 0, count2 = 0;
  for (int64_t i = 0; i < s->n; i += 16) {
    const __mmask16 valid = tail_mask(s->n - i);
    const __m512 a = _mm512_maskz_loadu_ps(valid, s->x + i);
    const __m512i w = _mm512_maskz_mov_epi32(valid, weight_of(a, scale, top));
    all = add_weights(all, w);
    if (s->weights != nullptr) _mm512_mask_storeu_epi32(s->weights + i, valid, w);
    const __mmask16 k2 = _mm512_mask_cmp_ps_mask(valid, a, cut2, _CMP_GE_OQ);
    if (k2 == 0) continue;  // cuts descend: cut[2] is the lowest
    const __mmask16 k0 = _mm512_mask_cmp_ps_mask(valid, a, cut0, _CMP_GE_OQ);
    const __mmask16 k1 = _mm512_mask_cmp_ps_mask(valid, a, cut1, _CMP_GE_OQ);
    sum0 = add_weights(sum0, _mm512_maskz_mov_epi32(k0, w));
    sum1 = add_weights(sum1, _mm512_maskz_mov_epi32(k1, w));
    sum2 = add_weights(sum2, _mm512_maskz_mov_epi32(k2, w));
    count0 += __builtin_popcount(k0), count1 += __builtin_popcount(k1), count2 += __builtin_popcount(k2);
  }
  s->mass = static_cast<uint64_t>(_mm512_reduce_add_epi64(all));
  s->cut_mass[0] = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum0)), s->cut_count[0] = count0;
  s->cut_mass[1] = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum1)), s->cut_count[1] = count1;
  s->cut_mass[2] = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum2)), s->cut_count[2] = count2;
}

void cut_scan(MassScan* s, const uint32_t* w) {
  const __m512 cut0 = _mm512_set1_ps(s->cut[0]), cut1 = _mm512_set1_ps(s->cut[1]), cut2 = _mm512_set1_ps(s->cut[2]);
  __m512i sum0 = _mm512_setzero_si512(), sum1 = sum0, sum2 = sum0;
  int64_t count0 = 0, count1 = 0, count2 = 0;
  for (int64_t i = 0; i < s->n; i += 16) {
    const __mmask16 valid = tail_mask(s->n - i);
    const __m512 a = _mm512_maskz_loadu_ps(valid, s->x + i);
    const __mmask16 k2 = _mm512_mask_cmp_ps_mask(valid, a, cut2, _CMP_GE_OQ);
    if (k2 == 0) continue;
    const __m512i v = _mm512_maskz_loadu_epi32(valid, w + i);
    const __mmask16 k0 = _mm512_mask_cmp_ps_mask(valid, a, cut0, _CMP_GE_OQ);
    const __mmask16 k1 = _mm512_mask_cmp_ps_mask(valid, a, cut1, _CMP_GE_OQ);
    sum0 = add_weights(sum0, _mm512_maskz_mov_epi32(k0, v));
    sum1 = add_weights(sum1, _mm512_maskz_mov_epi32(k1, v));
    sum2 = add_weights(sum2, _mm512_maskz_mov_epi32(k2, v));
    count0 += __builtin_popcount(k0), count1 += __builtin_popcount(k1), count2 += __builtin_popcount(k2);
  }
  s->cut_mass[0] = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum0)), s->cut_count[0] = count0;
  s->cut_mass[1] = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum1)), s->cut_count[1] = count1;
  s->cut_mass[2] = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum2)), s->cut_count[2] = count2;
}

int64_t filter(const float* x, int64_t n, float low, float high, int32_t first, float* values, int32_t* indices) {
  const __m512 lo = _mm512_set1_ps(low), hi = _mm512_set1_ps(high);
  const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t k = 0;
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 valid = tail_mask(n - i);
    const __m512 a = _mm512_maskz_loadu_ps(valid, x + i);
    __mmask16 hit = _mm512_mask_cmp_ps_mask(valid, a, lo, _CMP_GE_OQ);
    hit = _mm512_mask_cmp_ps_mask(hit, a, hi, _CMP_NGE_UQ);
    if (hit == 0) continue;
    // In registers, then a whole store: compressing stores to memory are slow on some processors.
    _mm512_storeu_ps(values + k, _mm512_maskz_compress_ps(hit, a));
    const __m512i at = _mm512_add_epi32(_mm512_set1_epi32(first + static_cast<int32_t>(i)), step);
    _mm512_storeu_si512(indices + k, _mm512_maskz_compress_epi32(hit, at));
    k += __builtin_popcount(hit);
  }
  return k;
}

void weights(const float* x, int64_t n, float scale, float top, uint32_t* out) {
  const __m512 s = _mm512_set1_ps(scale), t = _mm512_set1_ps(top);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 valid = tail_mask(n - i);
    _mm512_mask_storeu_epi32(out + i, valid, weight_of(_mm512_maskz_loadu_ps(valid, x + i), s, t));
  }
}

void exp_sum(const float* x, int64_t n, float scale, float top, double* sums) {
  const __m512 s = _mm512_set1_ps(scale), t = _mm512_set1_ps(top);
  __m512d low = _mm512_setzero_pd(), high = low;
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 valid = tail_mask(n - i);
    const __m512 d = _mm512_sub_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(valid, x + i), s), t);
    const __m512 e = _mm512_maskz_mov_ps(valid, exp_of(d));
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(e)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1)));
  }
  _mm512_storeu_pd(sums, low);
  _mm512_storeu_pd(sums + 8, high);
}

int64_t count_above(const float* x, int64_t n, float value) {
  const __m512 v = _mm512_set1_ps(value);
  int64_t k = 0;
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 valid = tail_mask(n - i);
    k += __builtin_popcount(_mm512_mask_cmp_ps_mask(valid, _mm512_maskz_loadu_ps(valid, x + i), v, _CMP_GT_OQ));
  }
  return k;
}

}  // namespace

const SampleKernels& sample_kernels_avx512() {
  static constexpr SampleKernels kKernels{max_scan, mass_scan, cut_scan, filter, weights, exp_sum, count_above};
  return kKernels;
}

}  // namespace tern::kernels
