#include "ops/cpu/panel_product.h"

#include <algorithm>
#include <cstring>

namespace tern::ops::cpu {
namespace {

using kernels::GemmArgs;
using kernels::KernelTable;

constexpr int64_t kRowBlock = 96;   // rows whose sums are kept while k advances
constexpr int64_t kTaskRows = 192;  // rows of one task when there are many

struct Scratch {
  alignas(64) float acc[kRowBlock * kPanel];
  alignas(64) float x[kRowBlock * kKBlock];    // converted or padded block of x
  alignas(64) float part[kRowBlock * kPanel];  // codes: sums of a group
  float x_sum[kRowBlock];                      // codes with zero points: sums of x over a group
  alignas(64) uint16_t w[kKBlock * kPanel];    // codes: a block of them as bf16 pairs
};

// Copies x[row0.., k0..k0+count) as `to`, zero-padded to `padded` values per row.
void stage_x(const KernelTable& t, const PanelJob& j, int64_t row0, int64_t rows, int64_t k0, int64_t count, DType to,
             int64_t padded, float* dst) {
  const auto in = static_cast<int64_t>(dtype_bytes(j.x_type)), out = static_cast<int64_t>(dtype_bytes(to));
  for (int64_t r = 0; r < rows; ++r) {
    const char* src = j.x + (row0 + r) * j.x_stride + k0 * in;
    char* row = reinterpret_cast<char*>(dst) + r * kKBlock * out;
    if (j.x_type == to) {
      std::memcpy(row, src, static_cast<size_t>(count * in));
    } else {
      t.widen(reinterpret_cast<const uint16_t*>(src), reinterpret_cast<float*>(row), count);
    }
    if (padded > count) std::memset(row + count * out, 0, static_cast<size_t>((padded - count) * out));
  }
}

// The rows of x that a block's products read, in the type that the kernel wants.
struct Rows {
  DType type;
  bool direct;  // read where they lie

  Rows(const KernelTable& t, const PanelJob& j) {
    const bool pairs = j.layout.type == DType::kBF16;
    type = pairs && j.x_type == DType::kBF16 && t.gemm_bf16 != nullptr ? DType::kBF16 : DType::kF32;
    direct = j.x_type == type && (!pairs || j.k % 2 == 0);
  }
  // k0..k0+count, padded to `padded` values.
  void put(const KernelTable& t, const PanelJob& j, int64_t row0, int64_t k0, int64_t count, int64_t padded, Scratch& s,
           GemmArgs& a) const {
    const auto bytes = static_cast<int64_t>(dtype_bytes(type));
    if (direct) {
      a.x = j.x + row0 * j.x_stride + k0 * bytes;
      a.ldx = j.x_stride / bytes;
      return;
    }
    stage_x(t, j, row0, a.rows, k0, count, type, padded, s.x);
    a.x = s.x;
    a.ldx = kKBlock;
  }
};

// Sums of a panel of values in s.acc.
void sum_values(const KernelTable& t, const PanelJob& j, const char* w, int64_t row0, int64_t rows, Scratch& s) {
  const bool pairs = j.layout.type == DType::kBF16;
  const Rows x(t, j);
  const auto kernel = x.type == DType::kBF16 ? t.gemm_bf16 : pairs ? t.gemm_f32_bf16 : t.gemm_f32;
  const int64_t per_step = pairs ? 2 : 1;
  // A few rows need no blocking of k: their sums stay in registers and the panel streams through once.
  const int64_t k_block = x.direct && rows <= t.stream_rows ? j.k : kKBlock;
  GemmArgs a{};
  a.ldw = kPanel * per_step;
  a.acc = s.acc, a.ld_acc = kPanel;
  a.rows = rows, a.cols = kPanel;
  for (int64_t k0 = 0; k0 < j.k; k0 += k_block) {
    const int64_t count = std::min(k_block, j.k - k0);
    a.ksteps = ceil_div(count, per_step);
    x.put(t, j, row0, k0, count, a.ksteps * per_step, s, a);
    a.w = w + k0 * kPanel * (pairs ? 2 : 4);
    a.accumulate = k0 > 0;
    // With several blocks of rows the first pass reads memory and the others the cache: keep memory busy meanwhile.
    a.prefetch = k_block < j.k || rows > t.stream_rows ? w + (k0 + count) * kPanel * (pairs ? 2 : 4) : nullptr;
    kernel(&a);
  }
}

// The kernel that reads codes as they are; null where there is none for so many rows.
auto code_kernel(const KernelTable& t, const PanelJob& j, const Rows& x, int64_t rows) {
  if (x.type != DType::kBF16 || !x.direct || rows > kernels::kCodeRows) return decltype(t.codes.gemm_int8){};
  const bool int4 = j.layout.codes == Codes::kInt4, int8 = j.layout.codes == Codes::kInt8;
  return int4 ? t.codes.gemm_int4 : int8 ? t.codes.gemm_int8 : t.codes.gemm_e4m3;
}

// Adds `count` values of each row of a.x to its sum, kKBlock at a time: one order whatever the number of rows.
void sum_rows(const KernelTable& t, const Rows& x, const GemmArgs& a, int64_t count, bool first, Scratch& s) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(x.type));
  for (int64_t r = 0; r < a.rows; ++r) {
    const char* row = static_cast<const char*>(a.x) + r * a.ldx * bytes;
    float sum = first ? 0.0f : s.x_sum[r];
    for (int64_t k = 0; k < count; k += kKBlock)
      sum += t.codes.sum_row(row + k * bytes, x.type == DType::kBF16, std::min(kKBlock, count - k));
    s.x_sum[r] = sum;
  }
}

// Sums of a panel of codes in s.acc: codes become bf16, which holds each of them exactly; a group's float32 sum, less
// its zero point times the sum of x, is multiplied by its scale. One order of k whatever the number of rows.
void sum_codes(const KernelTable& t, const PanelJob& j, const char* w, int64_t row0, int64_t rows, Scratch& s) {
  const Rows x(t, j);
  const auto kernel = x.type == DType::kBF16 ? t.gemm_bf16 : t.gemm_f32_bf16;
  const auto few = code_kernel(t, j, x, rows);
  const auto* scales = reinterpret_cast<const float*>(w + j.layout.value_bytes(j.k));
  const float* zeros = j.layout.zeros ? scales + j.layout.groups(j.k) * kPanel : nullptr;
  const bool grouped = j.layout.group > 0;
  int64_t left = !grouped ? j.k : j.first_group > 0 ? j.first_group : j.layout.group;  // k of this group
  GemmArgs a{};
  a.ldw = kPanel * 2;
  a.ld_acc = kPanel;
  a.rows = rows, a.cols = kPanel;
  bool first = true;
  for (int64_t k0 = 0, in_group = 0; k0 < j.k;) {
    const int64_t count = std::min({few != nullptr ? j.k : kKBlock, left, j.k - k0});
    const char* codes = w + j.layout.value_bytes(k0);
    a.ksteps = ceil_div<int64_t>(count, 2);
    x.put(t, j, row0, k0, count, a.ksteps * 2, s, a);
    if (zeros != nullptr) sum_rows(t, x, a, count, in_group == 0, s);
    if (few != nullptr) {
      const kernels::CodeGemmArgs c{static_cast<const uint16_t*>(a.x), a.ldx, codes, a.ksteps, s.part, rows, 0};
      few(&c);
    } else {
      widen_codes(t, j.layout.codes, codes, count, s.w);
      a.w = s.w;
      a.acc = s.part;
      a.accumulate = in_group > 0;
      kernel(&a);
    }
    k0 += count, in_group += count, left -= count;
    if (left > 0 && k0 < j.k) continue;
    t.codes.scale_sums(s.part, scales, zeros, s.x_sum, s.acc, rows, first ? 0 : 1);
    scales += kPanel, in_group = 0, left = j.layout.group, first = false;
    if (zeros != nullptr) zeros += kPanel;
  }
}

// Rows [row0, row0 + rows), at most kRowBlock, of one panel.
void run_block(const KernelTable& t, const PanelJob& j, int64_t panel, int64_t row0, int64_t rows, Scratch& s) {
  const char* w = j.w + panel * j.panel_bytes();
  (j.layout.codes == Codes::kNone ? sum_values : sum_codes)(t, j, w, row0, rows, s);
  const int64_t c0 = panel * kPanel, cols = std::min(kPanel, j.n - c0);
  char* out = j.out + c0 * static_cast<int64_t>(dtype_bytes(j.out_type));
  for (int64_t r = 0; r < rows; ++r) {
    t.store_row(s.acc + r * kPanel, j.bias == nullptr ? nullptr : j.bias + c0, 1.0f, out + (row0 + r) * j.out_stride,
                j.out_type == DType::kBF16, cols);
  }
}

}  // namespace

void widen_codes(const KernelTable& t, Codes codes, const char* w, int64_t count, uint16_t* pairs) {
  switch (codes) {
    case Codes::kInt8:
      return t.codes.widen_int8(w, pairs, ceil_div<int64_t>(count, 4));
    case Codes::kInt4:
      return t.codes.widen_int4(w, pairs, ceil_div<int64_t>(count, 8));
    default:
      return t.codes.widen_e4m3(w, pairs, ceil_div<int64_t>(count, 4));
  }
}

void run_panels(const KernelTable& t, const PanelJob& j, int64_t panel0, int64_t panel1, int64_t row0, int64_t row1) {
  Scratch s;  // not initialised: 180 KiB of stack
  for (int64_t p = panel0; p < panel1; ++p) {
    for (int64_t r = row0; r < row1; r += kRowBlock) run_block(t, j, p, r, std::min(kRowBlock, row1 - r), s);
  }
}

// About 1 MiB of weights, but at least four turns per thread.
int64_t panel_chunk(const PanelJob& j, int64_t jobs, device::Stream stream) {
  const int64_t fair = j.panels() * jobs / (4 * thread_count(stream));
  return std::clamp<int64_t>(std::min(fair, (int64_t{1} << 20) / std::max<int64_t>(j.panel_bytes(), 1)), 1, j.panels());
}

void run_job(const KernelTable& t, const PanelJob& j, device::Stream stream) {
  if (j.rows == 0) return;
  if (j.tiny(j.rows)) return run_panels(t, j, 0, j.panels(), 0, j.rows);
  const int64_t row_tasks = j.rows <= kTaskRows ? 1 : ceil_div(j.rows, kTaskRows);
  const int64_t chunk = row_tasks > 1 ? 1 : panel_chunk(j, 1, stream);
  const int64_t chunks = ceil_div(j.panels(), chunk);
  for_parts_dynamic(stream, static_cast<int>(chunks * row_tasks), [&](int part) {
    const int64_t c = part / row_tasks, r = part % row_tasks;
    run_panels(t, j, c * chunk, std::min((c + 1) * chunk, j.panels()), r * kTaskRows,
               std::min((r + 1) * kTaskRows, j.rows));
  });
}

}  // namespace tern::ops::cpu
