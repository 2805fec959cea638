#if defined(__x86_64__)
#include "image/kernels.h"

#include <immintrin.h>

namespace tern::image {
namespace {

alignas(16) const int8_t kPair[3][16] = {{0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1},
                                         {6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1},
                                         {12, -1, -1, -1, 13, -1, -1, -1, 14, -1, -1, -1, -1, -1, -1, -1}};

__m256i pair_shuffle(int pair) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kPair[pair])));
}

__m256i load2(const uint8_t* in, const int32_t* start, int offset) {
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + start[0] + offset));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + start[1] + offset));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

__m256i finish(__m256i low, __m256i high) {
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(low, _mm256_set1_epi32(1 << 21)), _mm256_slli_epi32(high, 16));
  return _mm256_srai_epi32(sum, 22);
}

void horizontal_row(const HorizontalTable& table, const uint8_t* in, uint8_t* out) {
  const __m256i shuffle[3] = {pair_shuffle(0), pair_shuffle(1), pair_shuffle(2)};
  const __m128i pick = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const int16_t *low_at = table.low, *high_at = table.high;
  const int32_t* start = table.start;
  for (int x = 0; x < table.width; x += 4, start += 4) {
    __m256i low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, high[2] = {low[0], low[0]};
    const auto pair = [&](const __m256i* pixels, int p) {
      for (int half = 0; half < 2; ++half) {
        const __m256i words = _mm256_shuffle_epi8(pixels[half], shuffle[p]);
        const __m256i l = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low_at + 16 * half));
        const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high_at + 16 * half));
        low[half] = _mm256_add_epi32(low[half], _mm256_madd_epi16(words, l));
        high[half] = _mm256_add_epi32(high[half], _mm256_madd_epi16(words, h));
      }
      low_at += 32;
      high_at += 32;
    };
    for (int w = 0; w < table.windows; ++w) {
      const __m256i pixels[2] = {load2(in, start, 12 * w), load2(in, start + 2, 12 * w)};
      for (int p = 0; p < table.pairs; ++p) pair(pixels, p);
    }
    // Lanes: pixels 0 and 2 of the group in the low half, 1 and 3 in the high one.
    const __m256i words = _mm256_packs_epi32(finish(low[0], high[0]), finish(low[1], high[1]));
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const __m128i all = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * static_cast<size_t>(x)), _mm_shuffle_epi8(all, pick));
  }
}

void horizontal(const HorizontalTable& table, const uint8_t* const* in, uint8_t* const* out) {
  for (int r = 0; r < kRowsAtOnce; ++r) horizontal_row(table, in[r], out[r]);
}

void vertical_block(const VerticalTaps& taps, const uint8_t* const* rows, size_t at, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i low[4] = {zero, zero, zero, zero}, high[4] = {zero, zero, zero, zero};
  for (int t = 0; t < taps.count; t += 2) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[t] + at));
    const __m256i b =
        t + 1 < taps.count ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[t + 1] + at)) : zero;
    const __m256i first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b);
    const __m256i words[4] = {_mm256_unpacklo_epi8(first, zero), _mm256_unpackhi_epi8(first, zero),
                              _mm256_unpacklo_epi8(second, zero), _mm256_unpackhi_epi8(second, zero)};
    const __m256i l = _mm256_set1_epi32(taps.low[t / 2]), h = _mm256_set1_epi32(taps.high[t / 2]);
    for (int i = 0; i < 4; ++i) {
      low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(words[i], l));
      high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(words[i], h));
    }
  }
  for (int i = 0; i < 4; ++i) low[i] = finish(low[i], high[i]);
  const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(low[0], low[1]), _mm256_packs_epi32(low[2], low[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), bytes);
}

void vertical(const VerticalTaps& taps, const uint8_t* const* rows, uint8_t* out, size_t bytes) {
  size_t i = 0;
  for (; i + 32 <= bytes; i += 32) vertical_block(taps, rows, i, out);
  for (; i < bytes; ++i) {
    int32_t sum = 1 << 21;
    for (int t = 0; t < taps.count; ++t) sum += rows[t][i] * taps.taps[t];
    sum >>= 22;
    out[i] = static_cast<uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
  }
}

// Eight pixels' bytes of channel c, out of 24 bytes in two loads (from 0 and from 8).
alignas(16) const int8_t kEight[3][2][16] = {{{0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                              {-1, -1, -1, -1, -1, -1, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1}},
                                             {{1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                              {-1, -1, -1, -1, -1, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1}},
                                             {{2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                              {-1, -1, -1, -1, -1, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1}}};

__m256 normalise8(const NormaliseTable& table, const uint8_t* in, int c) {
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 8));
  const __m128i pick_a = _mm_load_si128(reinterpret_cast<const __m128i*>(kEight[c][0]));
  const __m128i pick_b = _mm_load_si128(reinterpret_cast<const __m128i*>(kEight[c][1]));
  const __m128i bytes = _mm_or_si128(_mm_shuffle_epi8(a, pick_a), _mm_shuffle_epi8(b, pick_b));
  const __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  const __m256 d = _mm256_set1_ps(table.divisor[c]), r = _mm256_set1_ps(table.reciprocal[c]);
  const __m256 scale = _mm256_set1_ps(table.scale[c]);
  __m256 y = _mm256_mul_ps(x, scale);
  if (table.rescale_divisor != 0) {
    y = _mm256_fmadd_ps(_mm256_fnmadd_ps(y, _mm256_set1_ps(table.rescale_divisor), x), scale, y);
  }
  const __m256 t = _mm256_sub_ps(y, _mm256_set1_ps(table.shift[c]));
  const __m256 q = _mm256_mul_ps(t, r);
  return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, d, t), r, q);
}

// Nearest, ties to even; the values are finite.
__m128i round_bf16(__m256 v) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i words = _mm256_srli_epi32(rounded, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

void store(float* at, __m256 v) { _mm256_storeu_ps(at, v); }
void store(uint16_t* at, __m256 v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(at), round_bf16(v)); }

// Runs are written as two halves of eight that overlap in the middle.
template <class T>
void vector_patches(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, T* out) {
  const int size = row.size, second = size - 8;
  for (int p = 0; p < row.count; ++p) {
    T* patch = out + p / 2 * row.pair + p % 2 * row.odd;
    for (int y = 0; y < size; ++y) {
      const uint8_t* pixels = in + y * stride + 3 * static_cast<size_t>(p) * size;
      for (int c = 0; c < 3; ++c) {
        const __m256 a = normalise8(table, pixels, c), b = normalise8(table, pixels + 3 * second, c);
        T* at = patch + c * row.plane + y * size;
        for (int copy = 0; copy < row.copies; ++copy, at += size * size) {
          store(at, a);
          store(at + second, b);
        }
      }
    }
  }
}

void patches_f32(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, float* out) {
  if (row.size < 8 || row.size > 16 || !table.fast) return kernels_scalar().patches_f32(table, in, stride, row, out);
  vector_patches(table, in, stride, row, out);
}

void patches_bf16(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, uint16_t* out) {
  if (row.size < 8 || row.size > 16 || !table.fast) return kernels_scalar().patches_bf16(table, in, stride, row, out);
  vector_patches(table, in, stride, row, out);
}

template <int kBits>
__m256i rotate(__m256i v) {
  if (kBits == 32) return _mm256_shuffle_epi32(v, 0xb1);
  return _mm256_or_si256(_mm256_slli_epi64(v, kBits), _mm256_srli_epi64(v, 64 - kBits));
}

struct HashState {
  __m256i v0, v1, v2, v3;
};

inline __attribute__((always_inline)) void hash_round(HashState* s) {
  s->v0 = _mm256_add_epi64(s->v0, s->v1), s->v2 = _mm256_add_epi64(s->v2, s->v3);
  s->v1 = _mm256_xor_si256(rotate<13>(s->v1), s->v0), s->v3 = _mm256_xor_si256(rotate<16>(s->v3), s->v2);
  s->v0 = _mm256_add_epi64(rotate<32>(s->v0), s->v3), s->v2 = _mm256_add_epi64(s->v2, s->v1);
  s->v3 = _mm256_xor_si256(rotate<21>(s->v3), s->v0), s->v1 = _mm256_xor_si256(rotate<17>(s->v1), s->v2);
  s->v2 = rotate<32>(s->v2);
}

void hash(HashLanes* lanes, const uint8_t* data, size_t blocks) {
  HashState state[2];
  const auto at = [&](int i, int half) { return reinterpret_cast<__m256i*>(lanes->v[i] + 4 * half); };
  for (int h = 0; h < 2; ++h) {
    state[h] = {_mm256_load_si256(at(0, h)), _mm256_load_si256(at(1, h)), _mm256_load_si256(at(2, h)),
                _mm256_load_si256(at(3, h))};
  }
  for (size_t b = 0; b < blocks; ++b, data += 64) {
    __m256i word[2];
    for (int h = 0; h < 2; ++h) {
      word[h] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 32 * h));
      state[h].v3 = _mm256_xor_si256(state[h].v3, word[h]);
    }
    for (int round = 0; round < 2; ++round) {
      hash_round(&state[0]);
      hash_round(&state[1]);
    }
    for (int h = 0; h < 2; ++h) state[h].v0 = _mm256_xor_si256(state[h].v0, word[h]);
  }
  for (int h = 0; h < 2; ++h) {
    _mm256_store_si256(at(0, h), state[h].v0);
    _mm256_store_si256(at(1, h), state[h].v1);
    _mm256_store_si256(at(2, h), state[h].v2);
    _mm256_store_si256(at(3, h), state[h].v3);
  }
}

}  // namespace

const Kernels& kernels_avx2() {
  static constexpr Kernels kernels{horizontal, vertical, patches_f32, patches_bf16, hash};
  return kernels;
}

}  // namespace tern::image
#endif
