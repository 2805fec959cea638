#include <immintrin.h>

#include "kernels/cpu/sample/sample_kernels.h"

namespace tern::kernels {
namespace {

// As exp_of in sample_ref.cc, operation by operation; fused where it says so.
inline __m256 exp_of(__m256 d) {
  const __m256 magic = _mm256_set1_ps(12582912.0f), log2e = _mm256_set1_ps(1.44269504f);
  d = _mm256_max_ps(d, _mm256_set1_ps(-80.0f));
  const __m256 shifted = _mm256_fmadd_ps(d, log2e, magic);
  const __m256 n = _mm256_sub_ps(shifted, magic);
  const __m256 r = _mm256_fmsub_ps(d, log2e, n);
  __m256 p = _mm256_set1_ps(1.3264726908e-3f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(9.6715126604e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.5507337442e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(2.4022242085e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(6.9314697760e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

inline __m256i weight_of(__m256 x, __m256 scale, __m256 top) {
  const __m256 d = _mm256_sub_ps(_mm256_mul_ps(x, scale), top);
  return _mm256_cvtps_epi32(_mm256_mul_ps(exp_of(d), _mm256_set1_ps(1073741824.0f)));
}

inline __m256i add_weights(__m256i sum, __m256i w) {
  sum = _mm256_add_epi64(sum, _mm256_and_si256(w, _mm256_set1_epi64x(0xffffffffll)));
  return _mm256_add_epi64(sum, _mm256_srli_epi64(w, 32));
}

inline __m256i masked(__m256 mask, __m256i w) { return _mm256_and_si256(_mm256_castps_si256(mask), w); }

inline uint64_t sum_of(__m256i v) {
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

// Eight values from x, or `left` of them and `fill` for the rest.
inline __m256 load(const float* x, int64_t left, float fill) {
  if (left >= 8) return _mm256_loadu_ps(x);
  alignas(32) float lanes[8];
  for (int i = 0; i < 8; ++i) lanes[i] = i < left ? x[i] : fill;
  return _mm256_load_ps(lanes);
}

constexpr int64_t kChunk = 4096;

void max_scan(const float* x, int64_t n, MaxScan* out) {
  const float lowest = -__builtin_inff();
  float best = lowest;
  int64_t best_chunk = 0;
  __m256 nan = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t end = begin + kChunk < n ? begin + kChunk : n;
    __m256 m0 = _mm256_set1_ps(lowest), m1 = m0;
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
      const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
      nan = _mm256_or_ps(nan, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
      m0 = _mm256_max_ps(m0, a), m1 = _mm256_max_ps(m1, b);
    }
    for (; i < end; i += 8) {
      const __m256 a = load(x + i, end - i, lowest);
      nan = _mm256_or_ps(nan, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
      m0 = _mm256_max_ps(m0, a);
    }
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, _mm256_max_ps(m0, m1));
    float top = lanes[0];
    for (int l = 1; l < 8; ++l) top = lanes[l] > top ? lanes[l] : top;
    if (top > best) best = top, best_chunk = begin;
  }
  out->max = best, out->index = 0, out->nan = _mm256_movemask_ps(nan) != 0;
  if (out->nan || best == lowest) return;
  for (int64_t i = best_chunk; i < n; i += 8) {
    const int hit = _mm256_movemask_ps(_mm256_cmp_ps(load(x + i, n - i, lowest), _mm256_set1_ps(best), _CMP_EQ_OQ));
    if (hit != 0) {
      out->index = static_cast<int32_t>(i + __builtin_ctz(static_cast<unsigned>(hit)));
      return;
    }
  }
}

void mass_scan(MassScan* s) {
  const __m256 scale = _mm256_set1_ps(s->scale), top = _mm256_set1_ps(s->top);
  const __m256 cut0 = _mm256_set1_ps(s->cut[0]), cut1 = _mm256_set1_ps(s->cut[1]), cut2 = _mm256_set1_ps(s->cut[2]);
  __m256i all = _mm256_setzero_si256(), sum0 = all, sum1 = all, sum2 = all;
  int64_t count0 = 0, count1 = 0, count2 = 0;
  int64_t i = 0;
  for (; i + 8 <= s->n; i += 8) {
    const __m256 a = _mm256_loadu_ps(s->x + i);
    const __m256i w = weight_of(a, scale, top);
    all = add_weights(all, w);
    if (s->weights != nullptr) _mm256_storeu_si256(reinterpret_cast<__m256i*>(s->weights + i), w);
    const __m256 k2 = _mm256_cmp_ps(a, cut2, _CMP_GE_OQ);
    const auto bits2 = static_cast<unsigned>(_mm256_movemask_ps(k2));
    if (bits2 == 0) continue;  // cuts descend: cut[2] is the lowest
    const __m256 k0 = _mm256_cmp_ps(a, cut0, _CMP_GE_OQ), k1 = _mm256_cmp_ps(a, cut1, _CMP_GE_OQ);
    sum0 = add_weights(sum0, masked(k0, w));
    sum1 = add_weights(sum1, masked(k1, w));
    sum2 = add_weights(sum2, masked(k2, w));
    count0 += __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(k0)));
    count1 += __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(k1)));
    count2 += __builtin_popcount(bits2);
  }
  s->mass = sum_of(all);
  s->cut_mass[0] = sum_of(sum0), s->cut_mass[1] = sum_of(sum1), s->cut_mass[2] = sum_of(sum2);
  s->cut_count[0] = count0, s->cut_count[1] = count1, s->cut_count[2] = count2;
  if (i == s->n) return;
  MassScan rest = *s;
  rest.x += i, rest.n -= i;
  if (rest.weights != nullptr) rest.weights += i;
  sample_kernels_scalar().mass_scan(&rest);
  s->mass += rest.mass;
  for (int j = 0; j < kMassCuts; ++j) s->cut_mass[j] += rest.cut_mass[j], s->cut_count[j] += rest.cut_count[j];
}

void cut_scan(MassScan* s, const uint32_t* w) {
  const __m256 cut0 = _mm256_set1_ps(s->cut[0]), cut1 = _mm256_set1_ps(s->cut[1]), cut2 = _mm256_set1_ps(s->cut[2]);
  __m256i sum0 = _mm256_setzero_si256(), sum1 = sum0, sum2 = sum0;
  int64_t count0 = 0, count1 = 0, count2 = 0;
  int64_t i = 0;
  for (; i + 8 <= s->n; i += 8) {
    const __m256 a = _mm256_loadu_ps(s->x + i);
    const __m256 k2 = _mm256_cmp_ps(a, cut2, _CMP_GE_OQ);
    const auto bits2 = static_cast<unsigned>(_mm256_movemask_ps(k2));
    if (bits2 == 0) continue;
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + i));
    const __m256 k0 = _mm256_cmp_ps(a, cut0, _CMP_GE_OQ), k1 = _mm256_cmp_ps(a, cut1, _CMP_GE_OQ);
    sum0 = add_weights(sum0, masked(k0, v));
    sum1 = add_weights(sum1, masked(k1, v));
    sum2 = add_weights(sum2, masked(k2, v));
    count0 += __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(k0)));
    count1 += __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(k1)));
    count2 += __builtin_popcount(bits2);
  }
  s->cut_mass[0] = sum_of(sum0), s->cut_mass[1] = sum_of(sum1), s->cut_mass[2] = sum_of(sum2);
  s->cut_count[0] = count0, s->cut_count[1] = count1, s->cut_count[2] = count2;
  if (i == s->n) return;
  MassScan rest = *s;
  rest.x += i, rest.n -= i;
  sample_kernels_scalar().cut_scan(&rest, w + i);
  for (int j = 0; j < kMassCuts; ++j) s->cut_mass[j] += rest.cut_mass[j], s->cut_count[j] += rest.cut_count[j];
}

int64_t filter(const float* x, int64_t n, float low, float high, int32_t first, float* values, int32_t* indices) {
  const __m256 lo = _mm256_set1_ps(low), hi = _mm256_set1_ps(high);
  int64_t k = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 a = _mm256_loadu_ps(x + i);
    const __m256 inside = _mm256_and_ps(_mm256_cmp_ps(a, lo, _CMP_GE_OQ), _mm256_cmp_ps(a, hi, _CMP_NGE_UQ));
    auto hit = static_cast<unsigned>(_mm256_movemask_ps(inside));
    for (; hit != 0; hit &= hit - 1) {
      const int64_t at = i + __builtin_ctz(hit);
      values[k] = x[at], indices[k++] = first + static_cast<int32_t>(at);
    }
  }
  for (; i < n; ++i) {
    if (x[i] >= low && !(x[i] >= high)) values[k] = x[i], indices[k++] = first + static_cast<int32_t>(i);
  }
  return k;
}

void weights(const float* x, int64_t n, float scale, float top, uint32_t* out) {
  const __m256 s = _mm256_set1_ps(scale), t = _mm256_set1_ps(top);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), weight_of(_mm256_loadu_ps(x + i), s, t));
  }
  if (i < n) sample_kernels_scalar().weights(x + i, n - i, scale, top, out + i);
}

void exp_sum(const float* x, int64_t n, float scale, float top, double* sums) {
  const __m256 s = _mm256_set1_ps(scale), t = _mm256_set1_ps(top);
  __m256d acc[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int h = 0; h < 2; ++h) {
      const __m256 e = exp_of(_mm256_sub_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * h), s), t));
      acc[2 * h] = _mm256_add_pd(acc[2 * h], _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
      acc[2 * h + 1] = _mm256_add_pd(acc[2 * h + 1], _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
    }
  }
  for (int q = 0; q < 4; ++q) _mm256_storeu_pd(sums + 4 * q, acc[q]);
  if (i == n) return;
  double rest[kSumLanes];
  sample_kernels_scalar().exp_sum(x + i, n - i, scale, top, rest);
  for (int l = 0; l < kSumLanes; ++l) sums[l] += rest[l];
}

int64_t count_above(const float* x, int64_t n, float value) {
  const __m256 v = _mm256_set1_ps(value);
  int64_t k = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    const int hit = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), v, _CMP_GT_OQ));
    k += __builtin_popcount(static_cast<unsigned>(hit));
  }
  for (; i < n; ++i) k += x[i] > value;
  return k;
}

}  // namespace

const SampleKernels& sample_kernels_avx2() {
  static constexpr SampleKernels kKernels{max_scan, mass_scan, cut_scan, filter, weights, exp_sum, count_above};
  return kKernels;
}

}  // namespace tern::kernels
