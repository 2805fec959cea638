// Inside the room: the inner loops of resizing and patchifying, one set per instruction set, all with equal results.
//
// Resizing is exact integer arithmetic: out = clamp((2^21 + sum over taps of pixel * coefficient) >> 22), coefficients
// rounded to 22 bits. Vector code splits a coefficient into 65536 * high + low, both signed 16-bit, so that two taps
// meet in one multiply-add of 16-bit pairs; sums are taken modulo 2^32, which the full sum fits into.
//
// These headers are read by files compiled for other instruction sets: plain data and declarations only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_isa.h"

namespace tern::image {

// One row of RGB pixels to another. Pixels of the result stand in groups of four lanes; for each lane the taps are read
// in windows of 16 bytes from its own start. A window is used as pairs of taps: (0,1), (2,3) and, where there is only
// one window, (4, none). Lanes past the end have zero coefficients and start at 0.
struct HorizontalTable {
  int width;             // pixels of the result
  int windows;           // 16-byte windows per lane
  int pairs;             // pairs of taps per window: 2 (12 bytes on per window) or 3 (one window of five taps)
  const int32_t* start;  // [groups * 4] byte offset of a lane's first window
  const int16_t* low;    // [groups][windows][pairs][4 lanes][8]: (c0 c1) x 3 channels, then 0 0
  const int16_t* high;   // the same
  const int32_t* first;  // [width] first tap's pixel (scalar code)
  const int32_t* count;  // [width] number of taps
  const int32_t* taps;   // [width][stride] coefficients
  int stride;
};

// Coefficients of one row of the result. Vector code takes them in pairs: low[2 * p], low[2 * p + 1].
struct VerticalTaps {
  int count;            // of taps
  const int32_t* taps;  // [count]
  const int32_t* low;   // [(count + 1) / 2] two int16 packed into 32 bits, the first tap in the low half
  const int32_t* high;
};

// The value of each byte, by channel, and the arithmetic that gives the same where `fast` says that it does (checked
// for all values): y = x * scale, made x / rescale_divisor by a fused correction where that is not 0; t = y - shift; q
// = t * reciprocal, made t / divisor by a fused correction.
struct NormaliseTable {
  float scale[3], shift[3], divisor[3], reciprocal[3];
  float rescale_divisor;
  bool fast;
  const float* value;       // [3][256] the definition
  const uint16_t* value16;  // [3][256] rounded to bfloat16
};

// One row of patches: `count` patches of size x size pixels out of `size` rows of RGB pixels. Patch i is written at
// (i / 2) * pair + (i % 2) * odd; in it, channel c's row y at c * plane + y * size, and the same again `copies` - 1
// times, size * size elements apart.
struct PatchRow {
  int count, size, copies;
  size_t plane, pair, odd;
};

// Eight SipHash states side by side; lane i takes every eighth word from the i-th on.
struct HashLanes {
  alignas(64) uint64_t v[4][8];
};

// Rows that `horizontal` takes at once.
inline constexpr int kRowsAtOnce = 4;

struct Kernels {
  // kRowsAtOnce rows (some may be the same). Rows of the result may be written up to 64 bytes past their end, rows of
  // the source read up to 64 past theirs.
  void (*horizontal)(const HorizontalTable& table, const uint8_t* const* in, uint8_t* const* out);
  // out[i] for i < bytes from rows[tap][i]; nothing beyond is written.
  void (*vertical)(const VerticalTaps& taps, const uint8_t* const* rows, uint8_t* out, size_t bytes);
  // Row y of the pixels starts at in + y * stride. Reads exactly the pixels, writes exactly the patches.
  void (*patches_f32)(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row, float* out);
  void (*patches_bf16)(const NormaliseTable& table, const uint8_t* in, size_t stride, const PatchRow& row,
                       uint16_t* out);
  // SipHash's two rounds per word over `blocks` blocks of 64 bytes.
  void (*hash)(HashLanes* lanes, const uint8_t* data, size_t blocks);
};

const Kernels& kernels_scalar();
const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
// isa must not be above detect_isa().
const Kernels& kernels_for(Isa isa);

}  // namespace tern::image
