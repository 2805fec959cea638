#include <immintrin.h>

#include "kernels/cpu/ceilings/ceiling_kernels.h"

namespace tern::kernels {
namespace {

template <int kAcc>
float dot_zmm(int64_t iterations) {
  __m512 acc[kAcc];
  for (int i = 0; i < kAcc; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512i x = _mm512_set1_epi16(0x3f00), y = _mm512_set1_epi16(0x3e80);
  for (int64_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+v"(x), "+v"(y));
#pragma GCC unroll 32
    for (int i = 0; i < kAcc; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], (__m512bh)x, (__m512bh)y);
  }
  for (int i = 1; i < kAcc; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  return _mm512_reduce_add_ps(acc[0]);
}

float dot_ymm12(int64_t iterations) {
  __m256 acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256i x = _mm256_set1_epi16(0x3f00), y = _mm256_set1_epi16(0x3e80);
  for (int64_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+v"(x), "+v"(y));
#pragma GCC unroll 32
    for (int i = 0; i < 12; ++i) acc[i] = _mm256_dpbf16_ps(acc[i], (__m256bh)x, (__m256bh)y);
  }
  float sum = 0.0f, out[8];
  for (int i = 1; i < 12; ++i) acc[0] = _mm256_add_ps(acc[0], acc[i]);
  _mm256_storeu_ps(out, acc[0]);
  for (const float v : out) sum += v;
  return sum;
}

const DotVariant kBf16[] = {{"zmm, 8 sums", dot_zmm<8>, 8 * 64},
                            {"zmm, 12 sums", dot_zmm<12>, 12 * 64},
                            {"zmm, 16 sums", dot_zmm<16>, 16 * 64},
                            {"zmm, 24 sums", dot_zmm<24>, 24 * 64},
                            {"ymm, 12 sums", dot_ymm12, 12 * 32}};

}  // namespace

CeilingSet ceilings_avx512bf16() { return {nullptr, 0, kBf16, 5, nullptr, 0}; }

}  // namespace tern::kernels
