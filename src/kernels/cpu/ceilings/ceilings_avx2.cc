#include <immintrin.h>

#include "kernels/cpu/ceilings/ceiling_kernels.h"

namespace tern::kernels {
namespace {

template <int kStreams, bool kPrefetch>
uint64_t read_ymm(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  const int64_t part = bytes / kStreams;
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i < part; i += 128) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const char* q = p + s * part + i;
      if (kPrefetch) {
        _mm_prefetch(q + 2048, _MM_HINT_T0);
        _mm_prefetch(q + 2112, _MM_HINT_T0);
      }
      a = _mm256_xor_si256(a, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)));
      b = _mm256_xor_si256(b, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 32)));
      c = _mm256_xor_si256(c, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 64)));
      d = _mm256_xor_si256(d, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 96)));
    }
  }
  a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  alignas(32) uint64_t out[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(out), a);
  return out[0] ^ out[1] ^ out[2] ^ out[3];
}

template <int kAcc>
float fma_ymm(int64_t iterations) {
  __m256 acc[kAcc];
  for (int i = 0; i < kAcc; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
  for (int64_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+x"(x), "+x"(y));
#pragma GCC unroll 16
    for (int i = 0; i < kAcc; ++i) acc[i] = _mm256_fmadd_ps(x, y, acc[i]);
  }
  for (int i = 1; i < kAcc; ++i) acc[0] = _mm256_add_ps(acc[0], acc[i]);
  alignas(32) float out[8];
  _mm256_store_ps(out, acc[0]);
  float sum = 0.0f;
  for (const float v : out) sum += v;
  return sum;
}

const ReadVariant kReads[] = {{"ymm, one stream", read_ymm<1, false>},
                              {"ymm, one stream, prefetch", read_ymm<1, true>},
                              {"ymm, four streams", read_ymm<4, false>}};
const DotVariant kF32[] = {{"ymm, 8 sums", fma_ymm<8>, 8 * 16},
                           {"ymm, 10 sums", fma_ymm<10>, 10 * 16},
                           {"ymm, 12 sums", fma_ymm<12>, 12 * 16},
                           {"ymm, 14 sums", fma_ymm<14>, 14 * 16}};

}  // namespace

CeilingSet ceilings_avx2() { return {kReads, 3, nullptr, 0, kF32, 4}; }

}  // namespace tern::kernels
