#include <immintrin.h>

#include "kernels/cpu/ceilings/ceiling_kernels.h"

namespace tern::kernels {
namespace {

template <int kStreams, bool kPrefetch>
uint64_t read_zmm(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  const int64_t part = bytes / kStreams;
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (int64_t i = 0; i < part; i += 256) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const char* q = p + s * part + i;
      if (kPrefetch) {
        _mm_prefetch(q + 2048, _MM_HINT_T0);
        _mm_prefetch(q + 2112, _MM_HINT_T0);
        _mm_prefetch(q + 2176, _MM_HINT_T0);
        _mm_prefetch(q + 2240, _MM_HINT_T0);
      }
      a = _mm512_xor_si512(a, _mm512_loadu_si512(q));
      b = _mm512_xor_si512(b, _mm512_loadu_si512(q + 64));
      c = _mm512_xor_si512(c, _mm512_loadu_si512(q + 128));
      d = _mm512_xor_si512(d, _mm512_loadu_si512(q + 192));
    }
  }
  a = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(a));
}

template <int kAcc>
float fma_zmm(int64_t iterations) {
  __m512 acc[kAcc];
  for (int i = 0; i < kAcc; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
  for (int64_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+v"(x), "+v"(y));
#pragma GCC unroll 32
    for (int i = 0; i < kAcc; ++i) acc[i] = _mm512_fmadd_ps(x, y, acc[i]);
  }
  for (int i = 1; i < kAcc; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  return _mm512_reduce_add_ps(acc[0]);
}

const ReadVariant kReads[] = {{"zmm, one stream", read_zmm<1, false>},
                              {"zmm, one stream, prefetch", read_zmm<1, true>},
                              {"zmm, four streams", read_zmm<4, false>}};
const DotVariant kF32[] = {{"zmm, 8 sums", fma_zmm<8>, 8 * 32},
                           {"zmm, 12 sums", fma_zmm<12>, 12 * 32},
                           {"zmm, 16 sums", fma_zmm<16>, 16 * 32},
                           {"zmm, 24 sums", fma_zmm<24>, 24 * 32}};

}  // namespace

CeilingSet ceilings_avx512() { return {kReads, 3, nullptr, 0, kF32, 4}; }

}  // namespace tern::kernels
