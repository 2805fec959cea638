#include "image/kernels.h"

#include <cstring>

namespace tern::image {
namespace {

constexpr int32_t kHalf = 1 << 21;

inline uint8_t clip(int32_t sum) {
  const int32_t v = sum >> 22;
  return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v);
}

void horizontal_row(const HorizontalTable& table, const uint8_t* in, uint8_t* out) {
  for (int x = 0; x < table.width; ++x) {
    const uint8_t* p = in + 3 * static_cast<size_t>(table.first[x]);
    const int32_t* c = table.taps + static_cast<size_t>(x) * table.stride;
    int32_t sum[3] = {kHalf, kHalf, kHalf};
    for (int i = 0; i < table.count[x]; ++i) {
      sum[0] += p[3 * i] * c[i];
      sum[1] += p[3 * i + 1] * c[i];
      sum[2] += p[3 * i + 2] * c[i];
    }
    for (int s = 0; s < 3; ++s) out[3 * x + s] = clip(sum[s]);
  }
}

void horizontal(const HorizontalTable& table, const uint8_t* const* in, uint8_t* const* out) {
  for (int r = 0; r < kRowsAtOnce; ++r) horizontal_row(table, in[r], out[r]);
}

void vertical(const VerticalTaps& taps, const uint8_t* const* rows, uint8_t* out, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    int32_t sum = kHalf;
    for (int t = 0; t < taps.count; ++t) sum += rows[t][i] * taps.taps[t];
    out[i] = clip(sum);
  }
}

template <class T>
void patches(const T* values, const uint8_t* in, size_t stride, const PatchRow& row, T* out) {
  for (int p = 0; p < row.count; ++p) {
    for (int y = 0; y < row.size; ++y) {
      const uint8_t* pixels = in + y * stride + size_t{3} * p * row.size;
      T* at = out + p / 2 * row.pair + p % 2 * row.odd + y * row.size;
      for (int copy = 0; copy < row.copies; ++copy, at += row.size * row.size) {
        for (int c = 0; c < 3; ++c) {
          for (int i = 0; i < row.size; ++i) at[c * row.plane + i] = values[256 * c + pixels[3 * i + c]];
        }
      }
    }
  }
}

void patches_f32(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, float* out) {
  patches(table.value, in, stride, row, out);
}

void patches_bf16(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, uint16_t* out) {
  patches(table.value16, in, stride, row, out);
}

inline uint64_t rotate(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }

void hash(HashLanes* lanes, const uint8_t* data, size_t blocks) {
  auto& v = lanes->v;
  for (size_t b = 0; b < blocks; ++b, data += 64) {
    for (int i = 0; i < 8; ++i) {
      uint64_t word;
      std::memcpy(&word, data + 8 * i, 8);
      uint64_t v0 = v[0][i], v1 = v[1][i], v2 = v[2][i], v3 = v[3][i] ^ word;
      for (int round = 0; round < 2; ++round) {
        v0 += v1, v2 += v3;
        v1 = rotate(v1, 13) ^ v0, v3 = rotate(v3, 16) ^ v2;
        v0 = rotate(v0, 32) + v3, v2 += v1;
        v3 = rotate(v3, 21) ^ v0, v1 = rotate(v1, 17) ^ v2;
        v2 = rotate(v2, 32);
      }
      v[0][i] = v0 ^ word, v[1][i] = v1, v[2][i] = v2, v[3][i] = v3;
    }
  }
}

}  // namespace

const Kernels& kernels_scalar() {
  static constexpr Kernels kernels{horizontal, vertical, patches_f32, patches_bf16, hash};
  return kernels;
}

const Kernels& kernels_for(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kernels_avx512();
  if (isa == Isa::kAvx2) return kernels_avx2();
#endif
  (void)isa;
  return kernels_scalar();
}

}  // namespace tern::image
