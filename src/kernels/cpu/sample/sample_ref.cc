// The oracle of the sampling scans: plain loops.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/sample/sample_kernels.h"

namespace tern::kernels {
namespace {

// exp(d) for d <= 0, as a power of two: the whole part goes to the exponent, 2^r for |r| <= 1/2 is a polynomial of
// degree 5 that is exact at 0 (fitted for the least relative error, 9.2e-8). In all 2.5e-7 down to -5, 4.6e-7 to -22.
// Where it says fma one rounding is meant, elsewhere every operation rounds: other devices repeat it bit by bit.
float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

float exp_of(float d) {
  constexpr float kLog2e = 1.44269504f, kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  if (!(d > -80.0f)) d = -80.0f;
  const float shifted = fma(d, kLog2e, kMagic);
  const float n = shifted - kMagic;
  const float r = fma(d, kLog2e, -n);
  float p = 1.3264726908e-3f;
  p = fma(p, r, 9.6715126604e-3f);
  p = fma(p, r, 5.5507337442e-2f);
  p = fma(p, r, 2.4022242085e-1f);
  p = fma(p, r, 6.9314697760e-1f);
  p = fma(p, r, 1.0f);
  const auto exponent = std::bit_cast<uint32_t>(shifted) << 23;  // the magic's low bits vanish
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
}

uint32_t weight_of(float x, float scale, float top) {
  constexpr float kHalfway = 8388608.0f;  // 2^23: adding it rounds to an integer
  const float v = exp_of(x * scale - top) * 1073741824.0f;
  return static_cast<uint32_t>(v < kHalfway ? (v + kHalfway) - kHalfway : v);
}

void max_scan(const float* x, int64_t n, MaxScan* out) {
  *out = {-std::numeric_limits<float>::infinity(), 0, 0};
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) out->nan = 1;
    if (x[i] > out->max) out->max = x[i], out->index = static_cast<int32_t>(i);
  }
}

void mass_scan(MassScan* s) {
  s->mass = 0;
  for (int j = 0; j < kMassCuts; ++j) s->cut_mass[j] = 0, s->cut_count[j] = 0;
  for (int64_t i = 0; i < s->n; ++i) {
    const uint32_t w = weight_of(s->x[i], s->scale, s->top);
    s->mass += w;
    if (s->weights != nullptr) s->weights[i] = w;
    for (int j = 0; j < kMassCuts; ++j) {
      if (s->x[i] >= s->cut[j]) s->cut_mass[j] += w, ++s->cut_count[j];
    }
  }
}

void cut_scan(MassScan* s, const uint32_t* w) {
  for (int j = 0; j < kMassCuts; ++j) s->cut_mass[j] = 0, s->cut_count[j] = 0;
  for (int64_t i = 0; i < s->n; ++i) {
    for (int j = 0; j < kMassCuts; ++j) {
      if (s->x[i] >= s->cut[j]) s->cut_mass[j] += w[i], ++s->cut_count[j];
    }
  }
}

int64_t filter(const float* x, int64_t n, float low, float high, int32_t first, float* values, int32_t* indices) {
  int64_t k = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] >= low && !(x[i] >= high)) values[k] = x[i], indices[k++] = first + static_cast<int32_t>(i);
  }
  return k;
}

void weights(const float* x, int64_t n, float scale, float top, uint32_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = weight_of(x[i], scale, top);
}

void exp_sum(const float* x, int64_t n, float scale, float top, double* sums) {
  for (int l = 0; l < kSumLanes; ++l) sums[l] = 0;
  for (int64_t i = 0; i < n; ++i) sums[i % kSumLanes] += static_cast<double>(exp_of(x[i] * scale - top));
}

int64_t count_above(const float* x, int64_t n, float value) {
  int64_t k = 0;
  for (int64_t i = 0; i < n; ++i) k += x[i] > value;
  return k;
}

}  // namespace

const SampleKernels& sample_kernels_scalar() {
  static constexpr SampleKernels kKernels{max_scan, mass_scan, cut_scan, filter, weights, exp_sum, count_above};
  return kKernels;
}

const SampleKernels& sample_kernels() {
  switch (active_isa()) {
    case Isa::kScalar:
      return sample_kernels_scalar();
    case Isa::kAvx2:
      return sample_kernels_avx2();
    default:
      return sample_kernels_avx512();
  }
}

}  // namespace tern::kernels
