// Codes of quantized weights in plain loops: the oracle.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bf16.h"
#include "kernels/cpu/ref.h"

namespace tern::kernels {
namespace {

constexpr int64_t kPanel = 64;

float value(const void* x, int bf16_type, int64_t i) {
  return bf16_type != 0 ? to_float(bf16{static_cast<const uint16_t*>(x)[i]}) : static_cast<const float*>(x)[i];
}

// To the nearest whole number, ties to even, for magnitudes below 2^22.
float nearest(float v) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: whole numbers are its neighbours
  return (v + kMagic) - kMagic;
}

void encode_int(const void* x, int bf16_type, float scale, float bound, uint8_t* codes, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    // Only a scale that is itself rounded, among the smallest floats, leaves anything to clamp.
    const float q = scale == 0.0f ? 0.0f : std::clamp(value(x, bf16_type, i) / scale, -bound, bound);
    codes[i] = static_cast<uint8_t>(static_cast<int8_t>(nearest(q)));
  }
}

uint8_t to_e4m3(float v) {
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(v) >> 24 & 0x80);
  const float a = std::min(std::fabs(v), 448.0f);
  if (a < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint8_t>(nearest(a * 0x1p9f)));  // steps of 2^-9
  uint32_t u = std::bit_cast<uint32_t>(a);
  u += 0x7ffff + (u >> 20 & 1);
  return static_cast<uint8_t>(sign | ((u >> 20) - ((127 - 7) << 3)));
}

void encode_e4m3(const void* x, int bf16_type, float scale, uint8_t* codes, int64_t n) {
  for (int64_t i = 0; i < n; ++i) codes[i] = to_e4m3(scale == 0.0f ? 0.0f : value(x, bf16_type, i) / scale);
}

float from_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float a = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -a : a;
}

// Calls f(code) for four codes of each of 64 columns and keeps the results as two steps of pairs.
template <class F>
void widen(const uint8_t* codes, uint16_t* pairs, F&& f) {
  for (int64_t c = 0; c < kPanel; ++c) {
    for (int64_t i = 0; i < 4; ++i) pairs[i / 2 * 2 * kPanel + 2 * c + i % 2] = to_bf16(f(codes[4 * c + i])).bits;
  }
}

void widen_int8(const void* codes, uint16_t* pairs, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s)
    widen(static_cast<const uint8_t*>(codes) + s * 4 * kPanel, pairs + s * 4 * kPanel,
          [](uint8_t b) { return static_cast<float>(static_cast<int8_t>(b)); });
}

void widen_e4m3(const void* codes, uint16_t* pairs, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s)
    widen(static_cast<const uint8_t*>(codes) + s * 4 * kPanel, pairs + s * 4 * kPanel, from_e4m3);
}

template <class F>
void widen_tile(const WidenTile* a, F&& f) {
  const auto* codes = static_cast<const uint8_t*>(a->codes);
  for (int64_t s = 0; s < a->steps; ++s) {
    for (int64_t c = 0; c < a->cols; ++c) {
      for (int64_t i = 0; i < 4; ++i)
        a->pairs[(2 * s + i / 2) * a->ld_pairs + 2 * c + i % 2] = to_bf16(f(codes[s * a->ld + 4 * c + i])).bits;
    }
  }
}

void widen_tile_int8(const WidenTile* a) {
  widen_tile(a, [](uint8_t b) { return static_cast<float>(static_cast<int8_t>(b)); });
}

void widen_tile_e4m3(const WidenTile* a) { widen_tile(a, from_e4m3); }

float from_half_byte(int bits) { return static_cast<float>(bits < 8 ? bits : bits - 16); }

void widen_int4(const void* codes, uint16_t* pairs, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s) {
    const uint8_t* step = static_cast<const uint8_t*>(codes) + s * 4 * kPanel;
    widen(step, pairs + s * 8 * kPanel, [](uint8_t b) { return from_half_byte(b & 15); });
    widen(step, pairs + s * 8 * kPanel + 4 * kPanel, [](uint8_t b) { return from_half_byte(b >> 4); });
  }
}

float sum_row(const void* x, int bf16_type, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += value(x, bf16_type, i);
  return sum;
}

void scale_sums(const float* part, const float* scale, const float* zero, const float* x_sum, float* sum, int64_t rows,
                int accumulate) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) {
      const float p = part[r * kPanel + c] - (zero == nullptr ? 0.0f : zero[c] * x_sum[r]);
      const float v = p * scale[c];
      sum[r * kPanel + c] = accumulate == 0 ? v : sum[r * kPanel + c] + v;
    }
  }
}

}  // namespace

void fill_codes_ref(KernelTable* t) {
  t->codes = {.encode_int = encode_int,
              .encode_e4m3 = encode_e4m3,
              .widen_int8 = widen_int8,
              .widen_e4m3 = widen_e4m3,
              .widen_tile_int8 = widen_tile_int8,
              .widen_tile_e4m3 = widen_tile_e4m3,
              .widen_int4 = widen_int4,
              .sum_row = sum_row,
              .gemm_int8 = nullptr,
              .gemm_e4m3 = nullptr,
              .gemm_int4 = nullptr,
              .scale_sums = scale_sums};
}

}  // namespace tern::kernels
