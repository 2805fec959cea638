#include "media/kernels.h"

namespace tern::media {
namespace {

constexpr int32_t kHalf = 1 << 21;

inline uint8_t clip(int32_t sum) {
  const int32_t v = sum >> 22;
  return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v);
}

void horizontal(const HorizontalTable& table, const uint8_t* in, uint8_t* out) {
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

void vertical(const VerticalTaps& taps, const uint8_t* const* rows, uint8_t* out, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    int32_t sum = kHalf;
    for (int t = 0; t < taps.count; ++t) sum += rows[t][i] * taps.taps[t];
    out[i] = clip(sum);
  }
}

template <class T>
void runs(const T* values, const uint8_t* in, const RunLayout& runs, T* out) {
  for (int r = 0; r < runs.count; ++r, in += 3 * runs.size) {
    T* at = out + r / 2 * runs.pair + r % 2 * runs.odd;
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < runs.size; ++i) at[c * runs.plane + i] = values[256 * c + in[3 * i + c]];
    }
  }
}

void runs_f32(const NormaliseTable& table, const uint8_t* in, const RunLayout& layout, float* out) {
  runs(table.value, in, layout, out);
}

void runs_bf16(const NormaliseTable& table, const uint8_t* in, const RunLayout& layout, uint16_t* out) {
  runs(table.value16, in, layout, out);
}

}  // namespace

const Kernels& kernels_scalar() {
  static constexpr Kernels kernels{horizontal, vertical, runs_f32, runs_bf16};
  return kernels;
}

const Kernels& kernels_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kernels_avx512();
  if (isa == Isa::kAvx2) return kernels_avx2();
#endif
  (void)isa;
  return kernels_scalar();
}

}  // namespace tern::media
