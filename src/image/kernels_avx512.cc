#if defined(__x86_64__)
#include "image/kernels.h"

#include <immintrin.h>

namespace tern::image {
namespace {

// Bytes of two pixels to words (r0 r1) (g0 g1) (b0 b1) (0 0); the last one has no second pixel.
alignas(16) const int8_t kPair[3][16] = {{0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1},
                                         {6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1},
                                         {12, -1, -1, -1, 13, -1, -1, -1, 14, -1, -1, -1, -1, -1, -1, -1}};

__m512i pair_shuffle(int pair) {
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kPair[pair])));
}

__m512i load4(const uint8_t* in, const int32_t* start, int offset) {
  const auto at = [&](int lane) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + start[lane] + offset));
  };
  __m512i v = _mm512_castsi128_si512(at(0));
  v = _mm512_inserti32x4(v, at(1), 1);
  v = _mm512_inserti32x4(v, at(2), 2);
  return _mm512_inserti32x4(v, at(3), 3);
}

// Rounds, shifts and clamps four pixels of (r g b -) sums and writes 16 bytes, 12 of which count.
void store4(__m512i low, __m512i high, uint8_t* out) {
  __m512i sum = _mm512_add_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(1 << 21)), _mm512_slli_epi32(high, 16));
  sum = _mm512_max_epi32(_mm512_srai_epi32(sum, 22), _mm512_setzero_si512());
  const __m128i bytes = _mm512_cvtusepi32_epi8(sum);
  const __m128i pick = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(bytes, pick));
}

// Four rows share each load of coefficients: the tables of a page do not fit the first-level cache.
struct Sums {
  __m512i low, high;
};

inline __attribute__((always_inline)) void add_pair(Sums* sums, const __m512i* pixels, __m512i shuffle,
                                                    const int16_t* low_at, const int16_t* high_at) {
  const __m512i low = _mm512_loadu_si512(low_at), high = _mm512_loadu_si512(high_at);
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const __m512i words = _mm512_shuffle_epi8(pixels[r], shuffle);
    sums[r].low = _mm512_add_epi32(sums[r].low, _mm512_madd_epi16(words, low));
    sums[r].high = _mm512_add_epi32(sums[r].high, _mm512_madd_epi16(words, high));
  }
}

template <int kPairs>
void horizontal_of(const HorizontalTable& table, const uint8_t* const* in, uint8_t* const* out) {
  const __m512i shuffle[3] = {pair_shuffle(0), pair_shuffle(1), pair_shuffle(2)};
  const int16_t *low_at = table.low, *high_at = table.high;
  const int32_t* start = table.start;
  for (int x = 0; x < table.width; x += 4, start += 4) {
    const __m512i zero = _mm512_setzero_si512();
    Sums sums[kRowsAtOnce] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    for (int w = 0; w < table.windows; ++w) {
      __m512i pixels[kRowsAtOnce];
      for (int r = 0; r < kRowsAtOnce; ++r) pixels[r] = load4(in[r], start, 12 * w);
      for (int p = 0; p < kPairs; ++p, low_at += 32, high_at += 32) {
        add_pair(sums, pixels, shuffle[p], low_at, high_at);
      }
    }
    for (int r = 0; r < kRowsAtOnce; ++r) store4(sums[r].low, sums[r].high, out[r] + 3 * static_cast<size_t>(x));
  }
}

void horizontal(const HorizontalTable& table, const uint8_t* const* in, uint8_t* const* out) {
  if (table.pairs == 3) {
    horizontal_of<3>(table, in, out);
  } else {
    horizontal_of<2>(table, in, out);
  }
}

// 64 columns; with a mask for the last ones.
void vertical_block(const VerticalTaps& taps, const uint8_t* const* rows, size_t at, __mmask64 mask, uint8_t* out) {
  const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(1 << 21);
  __m512i low[4] = {half, half, half, half}, high[4] = {zero, zero, zero, zero};
  for (int t = 0; t < taps.count; t += 2) {
    const __m512i a = _mm512_maskz_loadu_epi8(mask, rows[t] + at);
    const __m512i b = t + 1 < taps.count ? _mm512_maskz_loadu_epi8(mask, rows[t + 1] + at) : zero;
    const __m512i first = _mm512_unpacklo_epi8(a, b), second = _mm512_unpackhi_epi8(a, b);
    const __m512i words[4] = {_mm512_unpacklo_epi8(first, zero), _mm512_unpackhi_epi8(first, zero),
                              _mm512_unpacklo_epi8(second, zero), _mm512_unpackhi_epi8(second, zero)};
    const __m512i l = _mm512_set1_epi32(taps.low[t / 2]), h = _mm512_set1_epi32(taps.high[t / 2]);
    for (int i = 0; i < 4; ++i) {
      low[i] = _mm512_add_epi32(low[i], _mm512_madd_epi16(words[i], l));
      high[i] = _mm512_add_epi32(high[i], _mm512_madd_epi16(words[i], h));
    }
  }
  for (int i = 0; i < 4; ++i) {
    low[i] = _mm512_srai_epi32(_mm512_add_epi32(low[i], _mm512_slli_epi32(high[i], 16)), 22);
  }
  const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(low[0], low[1]), _mm512_packs_epi32(low[2], low[3]));
  _mm512_mask_storeu_epi8(out + at, mask, bytes);
}

void vertical(const VerticalTaps& taps, const uint8_t* const* rows, uint8_t* out, size_t bytes) {
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64) vertical_block(taps, rows, i, ~__mmask64{0}, out);
  if (i < bytes) vertical_block(taps, rows, i, (__mmask64{1} << (bytes - i)) - 1, out);
}

// Runs of 11 to 16 pixels are read in three loads, from 0, from 16 and the last 16 bytes. Byte j of channel c stands at
// 3 * j + c; kSplit says where in which load, -1 elsewhere.
constexpr int kShortest = 11;
struct Splits {
  alignas(16) int8_t at[6][3][3][16];
};

constexpr Splits make_splits() {
  Splits splits{};
  for (int size = kShortest; size <= 16; ++size) {
    for (int c = 0; c < 3; ++c) {
      for (int j = 0; j < 16; ++j) {
        const int byte = 3 * j + c, part = byte / 16 < 2 ? byte / 16 : 2;
        const int begin = part == 2 ? 3 * size - 16 : 16 * part;
        for (int p = 0; p < 3; ++p) {
          splits.at[size - kShortest][c][p][j] = static_cast<int8_t>(p == part && j < size ? byte - begin : -1);
        }
      }
    }
  }
  return splits;
}
constexpr Splits kSplits = make_splits();

struct Channel {
  __m512 scale, shift, divisor, reciprocal;
  __m128i pick[3];
};

void load_channels(const NormaliseTable& table, int size, Channel* channels) {
  for (int c = 0; c < 3; ++c) {
    channels[c].scale = _mm512_set1_ps(table.scale[c]);
    channels[c].shift = _mm512_set1_ps(table.shift[c]);
    channels[c].divisor = _mm512_set1_ps(table.divisor[c]);
    channels[c].reciprocal = _mm512_set1_ps(table.reciprocal[c]);
    for (int p = 0; p < 3; ++p) {
      channels[c].pick[p] = _mm_load_si128(reinterpret_cast<const __m128i*>(kSplits.at[size - kShortest][c][p]));
    }
  }
}

struct Pixels {
  __m128i part[3];
};

Pixels load_pixels(const uint8_t* in, int size) {
  return {{_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)),
           _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16)),
           _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 3 * size - 16))}};
}

template <bool kCorrect>
__m512 normalise(const Channel& channel, __m512 rescale, const Pixels& pixels) {
  const __m128i bytes = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(pixels.part[0], channel.pick[0]),
                                                  _mm_shuffle_epi8(pixels.part[1], channel.pick[1])),
                                     _mm_shuffle_epi8(pixels.part[2], channel.pick[2]));
  const __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  __m512 y = _mm512_mul_ps(x, channel.scale);
  if (kCorrect) y = _mm512_fmadd_ps(_mm512_fnmadd_ps(y, rescale, x), channel.scale, y);
  const __m512 t = _mm512_sub_ps(y, channel.shift);
  const __m512 q = _mm512_mul_ps(t, channel.reciprocal);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, channel.divisor, t), channel.reciprocal, q);
}

// Writes up to 16 values; only `mask` of the last row of a channel, since what stands after it may be written already.
void store(float* at, __m512 v, bool last, __mmask16 mask) {
  if (last) {
    _mm512_mask_storeu_ps(at, mask, v);
  } else {
    _mm512_storeu_ps(at, v);
  }
}

void store(uint16_t* at, __m512 v, bool last, __mmask16 mask) {
  // Nearest, ties to even; the values are finite.
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  if (last) {
    _mm256_mask_storeu_epi16(at, mask, words);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), words);
  }
}

template <bool kCorrect, class T>
void vector_patches(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, T* out) {
  const int size = row.size;
  const __m512 rescale = _mm512_set1_ps(table.rescale_divisor);
  const __mmask16 mask = static_cast<__mmask16>((1u << size) - 1);
  Channel channels[3];
  load_channels(table, size, channels);
  for (int p = 0; p < row.count; ++p) {
    T* patch = out + p / 2 * row.pair + p % 2 * row.odd;
    for (int y = 0; y < size; ++y) {
      const Pixels pixels = load_pixels(in + y * stride + 3 * static_cast<size_t>(p) * size, size);
      for (int c = 0; c < 3; ++c) {
        const __m512 v = normalise<kCorrect>(channels[c], rescale, pixels);
        T* at = patch + c * row.plane + y * size;
        for (int copy = 0; copy < row.copies; ++copy, at += size * size) store(at, v, y == size - 1, mask);
      }
    }
  }
}

void patches_f32(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, float* out) {
  if (row.size < kShortest || row.size > 16 || !table.fast) {
    kernels_scalar().patches_f32(table, in, stride, row, out);
  } else if (table.rescale_divisor != 0) {
    vector_patches<true>(table, in, stride, row, out);
  } else {
    vector_patches<false>(table, in, stride, row, out);
  }
}

void patches_bf16(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, uint16_t* out) {
  if (row.size < kShortest || row.size > 16 || !table.fast) {
    kernels_scalar().patches_bf16(table, in, stride, row, out);
  } else if (table.rescale_divisor != 0) {
    vector_patches<true>(table, in, stride, row, out);
  } else {
    vector_patches<false>(table, in, stride, row, out);
  }
}

void hash(HashLanes* lanes, const uint8_t* data, size_t blocks) {
  __m512i v0 = _mm512_load_si512(lanes->v[0]), v1 = _mm512_load_si512(lanes->v[1]);
  __m512i v2 = _mm512_load_si512(lanes->v[2]), v3 = _mm512_load_si512(lanes->v[3]);
  for (size_t b = 0; b < blocks; ++b, data += 64) {
    const __m512i word = _mm512_loadu_si512(data);
    v3 = _mm512_xor_si512(v3, word);
    for (int round = 0; round < 2; ++round) {
      v0 = _mm512_add_epi64(v0, v1), v2 = _mm512_add_epi64(v2, v3);
      v1 = _mm512_xor_si512(_mm512_rol_epi64(v1, 13), v0), v3 = _mm512_xor_si512(_mm512_rol_epi64(v3, 16), v2);
      v0 = _mm512_add_epi64(_mm512_rol_epi64(v0, 32), v3), v2 = _mm512_add_epi64(v2, v1);
      v3 = _mm512_xor_si512(_mm512_rol_epi64(v3, 21), v0), v1 = _mm512_xor_si512(_mm512_rol_epi64(v1, 17), v2);
      v2 = _mm512_rol_epi64(v2, 32);
    }
    v0 = _mm512_xor_si512(v0, word);
  }
  _mm512_store_si512(lanes->v[0], v0);
  _mm512_store_si512(lanes->v[1], v1);
  _mm512_store_si512(lanes->v[2], v2);
  _mm512_store_si512(lanes->v[3], v3);
}

}  // namespace

const Kernels& kernels_avx512() {
  static constexpr Kernels kernels{horizontal, vertical, patches_f32, patches_bf16, hash};
  return kernels;
}

}  // namespace tern::image
#endif
