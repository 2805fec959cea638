// Products of a few rows with codes that are widened in registers: the sums that gemm_bf16 makes of widened codes, bit
// by bit, without the detour through memory. Bytes come from tables in registers, which needs AVX-512-VBMI.
#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_tables.h"

namespace tern::kernels {
namespace {

// The two bytes of the bf16 value of every magnitude.
struct Bytes {
  alignas(64) uint8_t low[128], high[128];
};

constexpr void set_whole(Bytes& b, int at, int value, int exponent) {  // value * 2^exponent
  int bits = 0;
  if (value > 0) {
    int top = 0;
    while (value >> (top + 1) != 0) ++top;
    bits = (127 + top + exponent) << 7 | (value << (7 - top) & 127);
  }
  b.low[at] = static_cast<uint8_t>(bits & 255);
  b.high[at] = static_cast<uint8_t>(bits >> 8);
}

constexpr Bytes int8_bytes() {
  Bytes b{};
  for (int i = 0; i < 128; ++i) set_whole(b, i, i, 0);
  return b;
}

constexpr Bytes e4m3_bytes() {
  Bytes b{};
  for (int i = 0; i < 128; ++i) {
    const int exponent = i >> 3, mantissa = i & 7;
    set_whole(b, i, exponent == 0 ? mantissa : 8 + mantissa, exponent == 0 ? -9 : exponent - 10);
  }
  return b;
}

constexpr Bytes kInt8 = int8_bytes(), kE4m3 = e4m3_bytes();

// Where the bytes of the pairs of codes (0, 1) of every column lie in [low, high]; those of (2, 3) two further.
struct Places {
  alignas(64) uint8_t first[64], second[64];
};
constexpr Places make_places() {
  Places p{};
  for (int i = 0; i < 64; ++i) {
    const int code = i / 4 * 4 + i % 4 / 2;
    p.first[i] = static_cast<uint8_t>(code + 64 * (i % 2));
    p.second[i] = static_cast<uint8_t>(code + 2 + 64 * (i % 2));
  }
  return p;
}
constexpr Places kPlaces = make_places();

// Codes of eight bits: a table for magnitudes, and the sign.
template <bool kWhole>
struct EightBits {
  static constexpr int kPairs = 2;  // of a step
  __m512i low0, low1, high0, high1, first, second;
  const __m512i lowest = _mm512_set1_epi8(-128), lowest_high = _mm512_set1_epi8(0x43);
  EightBits() {
    const Bytes& b = kWhole ? kInt8 : kE4m3;
    low0 = _mm512_load_si512(b.low), low1 = _mm512_load_si512(b.low + 64);
    high0 = _mm512_load_si512(b.high), high1 = _mm512_load_si512(b.high + 64);
    first = _mm512_load_si512(kPlaces.first), second = _mm512_load_si512(kPlaces.second);
  }
  inline void widen(__m512i v, __m512i (&pairs)[kPairs]) const {
    const __m512i index = kWhole ? _mm512_abs_epi8(v) : v;
    const __m512i low = _mm512_permutex2var_epi8(low0, index, low1);
    __m512i magnitude = _mm512_permutex2var_epi8(high0, index, high1);
    // -128, which only files hold, is beyond the tables: 0xc300.
    if (kWhole) magnitude = _mm512_mask_blend_epi8(_mm512_cmpeq_epi8_mask(v, lowest), magnitude, lowest_high);
    const __m512i high = _mm512_or_si512(magnitude, _mm512_and_si512(v, _mm512_set1_epi8(-128)));
    pairs[0] = _mm512_permutex2var_epi8(low, first, high);
    pairs[1] = _mm512_permutex2var_epi8(low, second, high);
  }
};

struct FourBits {
  static constexpr int kPairs = 4;
  __m512i low, high, first, second;
  FourBits() {
    const __m128i l = _mm_setr_epi8(0, -128, 0, 64, -128, -96, -64, -32, 0, -32, -64, -96, -128, 64, 0, -128);
    const __m128i h = _mm_setr_epi8(0, 63, 64, 64, 64, 64, 64, 64, -63, -64, -64, -64, -64, -64, -64, -65);
    low = _mm512_broadcast_i32x4(l), high = _mm512_broadcast_i32x4(h);
    first = _mm512_load_si512(kPlaces.first), second = _mm512_load_si512(kPlaces.second);
  }
  inline void widen(__m512i v, __m512i (&pairs)[kPairs]) const {
    const __m512i mask = _mm512_set1_epi8(15);
    const __m512i a = _mm512_and_si512(v, mask), b = _mm512_and_si512(_mm512_srli_epi32(v, 4), mask);
    const __m512i al = _mm512_shuffle_epi8(low, a), ah = _mm512_shuffle_epi8(high, a);
    const __m512i bl = _mm512_shuffle_epi8(low, b), bh = _mm512_shuffle_epi8(high, b);
    pairs[0] = _mm512_permutex2var_epi8(al, first, ah), pairs[1] = _mm512_permutex2var_epi8(al, second, ah);
    pairs[2] = _mm512_permutex2var_epi8(bl, first, bh), pairs[3] = _mm512_permutex2var_epi8(bl, second, bh);
  }
};

// One step of `count` pairs, at most K::kPairs.
template <class K, int MR>
inline void step(const K& k, const CodeGemmArgs* a, const uint8_t* codes, const uint16_t* x, int count,
                 __m512 (&sum)[MR][4]) {
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    __m512i pairs[K::kPairs];
    k.widen(_mm512_loadu_si512(codes + 64 * v), pairs);
#pragma GCC unroll 4
    for (int p = 0; p < K::kPairs; ++p) {
      if (p >= count) break;
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) {
        int pair;
        __builtin_memcpy(&pair, x + r * a->ldx + 2 * p, sizeof pair);
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)_mm512_set1_epi32(pair), (__m512bh)pairs[p]);
      }
    }
  }
}

template <class K, int MR>
void run(const CodeGemmArgs* a) {
  const K k;
  __m512 sum[MR][4];
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < 4; ++v)
      sum[r][v] = a->accumulate == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(a->acc + r * 64 + 16 * v);
  }
  const auto* codes = static_cast<const uint8_t*>(a->codes);
  const uint16_t* x = a->x;
  int64_t left = a->pairs;
  for (; left >= K::kPairs; left -= K::kPairs, codes += 256, x += 2 * K::kPairs)
    step<K, MR>(k, a, codes, x, K::kPairs, sum);
  if (left > 0) step<K, MR>(k, a, codes, x, static_cast<int>(left), sum);
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < 4; ++v) _mm512_storeu_ps(a->acc + r * 64 + 16 * v, sum[r][v]);
  }
}

template <class K>
void gemm(const CodeGemmArgs* a) {
  switch (a->rows) {
    case 1:
      return run<K, 1>(a);
    case 2:
      return run<K, 2>(a);
    case 3:
      return run<K, 3>(a);
    case 4:
      return run<K, 4>(a);
    case 5:
      return run<K, 5>(a);
    default:
      return run<K, 6>(a);
  }
}

}  // namespace

void fill_codes_avx512vbmi(KernelTable* t) {
  t->codes.gemm_int8 = gemm<EightBits<true>>;
  t->codes.gemm_e4m3 = gemm<EightBits<false>>;
  t->codes.gemm_int4 = gemm<FourBits>;
}

}  // namespace tern::kernels
