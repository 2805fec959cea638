// Rows times a weight that is kept as panels of 64 columns, so that one row and a thousand read the same bytes in the
// same order: what all weight formats of the CPU share.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "device/dtype.h"
#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"

namespace tern::ops::cpu {

inline constexpr int64_t kPanel = 64;    // columns
inline constexpr int64_t kKBlock = 256;  // k values per step: 32 KiB of a bf16 panel, which stays in the first cache

enum class Codes : uint8_t { kNone, kInt8, kInt4, kE4m3 };

// How a panel lies in memory. Values: for every pair of k (every k in f32) its 64 columns side by side. Codes: for
// every four k 64 columns of four bytes; int4: for every eight, the later four in the upper halves of the bytes. Behind
// the codes, for every group of k, 64 scales in float32, and behind all scales as many zero points where there are any.
struct PanelLayout {
  DType type = DType::kBF16;  // of values
  Codes codes = Codes::kNone;
  int64_t group = 0;   // k that a scale serves; 0: all of them
  bool zeros = false;  // there are zero points

  // Room for scales: a rank's slice may begin and end inside a group.
  int64_t groups(int64_t k) const { return group == 0 ? 1 : k / group + (k % group == 0 ? 0 : 2); }
  // Bytes of [0, k) without scales; k must be whole steps unless it is the last.
  int64_t value_bytes(int64_t k) const {
    switch (codes) {
      case Codes::kNone:
        return type == DType::kBF16 ? round_up<int64_t>(k, 2) * kPanel * 2 : k * kPanel * 4;
      case Codes::kInt4:
        return round_up<int64_t>(k, 8) * kPanel / 2;
      default:
        return round_up<int64_t>(k, 4) * kPanel;
    }
  }
  int64_t scale_bytes(int64_t k) const { return groups(k) * kPanel * static_cast<int64_t>(sizeof(float)); }
  int64_t bytes(int64_t k) const {
    return value_bytes(k) + (codes == Codes::kNone ? 0 : (zeros ? 2 : 1) * scale_bytes(k));
  }
};

// One product: rows of x against one packed weight.
struct PanelJob {
  const char* x = nullptr;
  int64_t x_stride = 0;  // bytes
  DType x_type = DType::kF32;
  const char* w = nullptr;
  PanelLayout layout;
  int64_t first_group = 0;  // k of the first group of scales; 0: a whole group
  int64_t rows = 0, n = 0, k = 0;
  const float* bias = nullptr;
  char* out = nullptr;
  int64_t out_stride = 0;  // bytes
  DType out_type = DType::kF32;

  int64_t panels() const { return ceil_div(n, kPanel); }
  int64_t panel_bytes() const { return layout.bytes(k); }
  // Too little work to wake another thread for.
  bool tiny(int64_t all_rows) const { return all_rows * n * k < 128 * 1024; }
};

// `count` k of a panel's codes, at most kKBlock, as bf16 pairs [count / 2][64][2].
void widen_codes(const kernels::KernelTable& t, Codes codes, const char* w, int64_t count, uint16_t* pairs);
// Panels [panel0, panel1) of rows [row0, row1), in the calling thread.
void run_panels(const kernels::KernelTable& t, const PanelJob& j, int64_t panel0, int64_t panel1, int64_t row0,
                int64_t row1);
// All of a job, by the stream's threads.
void run_job(const kernels::KernelTable& t, const PanelJob& j, device::Stream stream);
// Panels handed out at a time where `jobs` like this one run together.
int64_t panel_chunk(const PanelJob& j, int64_t jobs, device::Stream stream);

}  // namespace tern::ops::cpu
