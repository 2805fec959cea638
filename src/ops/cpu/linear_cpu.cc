// Linear layers on a CPU. A weight is kept as panels of 64 columns; a panel holds, for every pair of k (every k in
// f32), its 64 columns side by side, so that one row and a thousand read the same bytes in the same order.
#include <algorithm>
#include <cstring>

#include "base/bf16.h"
#include "base/checked.h"
#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

using kernels::GemmArgs;
using kernels::KernelTable;

constexpr int64_t kPanel = 64;      // columns
constexpr int64_t kRowBlock = 96;   // rows whose sums are kept while k advances
constexpr int64_t kKBlock = 256;    // k values per step: 32 KiB of a bf16 panel, which stays in the first cache
constexpr int64_t kTaskRows = 192;  // rows of one task when there are many

// One product: rows of x against one packed weight.
struct Job {
  const char* x = nullptr;
  int64_t x_stride = 0;  // bytes
  DType x_type = DType::kF32;
  const char* w = nullptr;
  DType w_type = DType::kBF16;
  int64_t rows = 0, n = 0, k = 0;
  const float* bias = nullptr;
  char* out = nullptr;
  int64_t out_stride = 0;  // bytes
  DType out_type = DType::kF32;

  int64_t panels() const { return ceil_div(n, kPanel); }
  int64_t panel_bytes() const { return w_type == DType::kBF16 ? round_up<int64_t>(k, 2) * kPanel * 2 : k * kPanel * 4; }
};

struct Scratch {
  alignas(64) float acc[kRowBlock * kPanel];
  alignas(64) float x[kRowBlock * kKBlock];  // converted or padded block of x
};

// Copies x[row0.., k0..k0+count) as `to`, zero-padded to `padded` values per row.
void stage_x(const KernelTable& t, const Job& j, int64_t row0, int64_t rows, int64_t k0, int64_t count, DType to,
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

// Rows [row0, row0 + rows), at most kRowBlock, of one panel.
void run_block(const KernelTable& t, const Job& j, int64_t panel, int64_t row0, int64_t rows, Scratch& s) {
  const bool pairs = j.w_type == DType::kBF16;
  const bool dot = pairs && j.x_type == DType::kBF16 && t.gemm_bf16 != nullptr;
  const auto kernel = dot ? t.gemm_bf16 : pairs ? t.gemm_f32_bf16 : t.gemm_f32;
  const DType x_type = dot ? DType::kBF16 : DType::kF32;
  const bool direct = j.x_type == x_type && (!pairs || j.k % 2 == 0);
  const auto x_bytes = static_cast<int64_t>(dtype_bytes(x_type));
  const int64_t per_step = pairs ? 2 : 1;
  // A few rows need no blocking of k: their sums stay in registers and the panel streams through once.
  const int64_t k_block = direct && rows <= t.stream_rows ? j.k : kKBlock;
  GemmArgs a{};
  a.ldw = kPanel * per_step;
  a.acc = s.acc, a.ld_acc = kPanel;
  a.rows = rows, a.cols = kPanel;
  const char* w = j.w + panel * j.panel_bytes();
  for (int64_t k0 = 0; k0 < j.k; k0 += k_block) {
    const int64_t count = std::min(k_block, j.k - k0);
    a.ksteps = ceil_div(count, per_step);
    if (direct) {
      a.x = j.x + row0 * j.x_stride + k0 * x_bytes;
      a.ldx = j.x_stride / x_bytes;
    } else {
      stage_x(t, j, row0, rows, k0, count, x_type, a.ksteps * per_step, s.x);
      a.x = s.x;
      a.ldx = kKBlock;
    }
    a.w = w + k0 * kPanel * (pairs ? 2 : 4);
    a.accumulate = k0 > 0;
    // With several blocks of rows the first pass reads memory and the others the cache: keep memory busy meanwhile.
    a.prefetch = k_block < j.k || rows > t.stream_rows ? w + (k0 + count) * kPanel * (pairs ? 2 : 4) : nullptr;
    kernel(&a);
  }
  const int64_t c0 = panel * kPanel, cols = std::min(kPanel, j.n - c0);
  char* out = j.out + c0 * static_cast<int64_t>(dtype_bytes(j.out_type));
  for (int64_t r = 0; r < rows; ++r) {
    t.store_row(s.acc + r * kPanel, j.bias == nullptr ? nullptr : j.bias + c0, 1.0f, out + (row0 + r) * j.out_stride,
                j.out_type == DType::kBF16, cols);
  }
}

void run_panels(const KernelTable& t, const Job& j, int64_t panel0, int64_t panel1, int64_t row0, int64_t row1) {
  Scratch s;  // not initialised: 120 KiB of stack
  for (int64_t p = panel0; p < panel1; ++p) {
    for (int64_t r = row0; r < row1; r += kRowBlock) run_block(t, j, p, r, std::min(kRowBlock, row1 - r), s);
  }
}

// Panels handed out at a time: about 1 MiB of weights, but at least four turns per thread.
int64_t panel_chunk(const Job& j, int64_t jobs, device::Stream stream) {
  const int64_t fair = j.panels() * jobs / (4 * thread_count(stream));
  return std::clamp<int64_t>(std::min(fair, (int64_t{1} << 20) / std::max<int64_t>(j.panel_bytes(), 1)), 1, j.panels());
}

bool tiny(const Job& j, int64_t rows) { return rows * j.n * j.k < 128 * 1024; }

void run_job(const KernelTable& t, const Job& j, device::Stream stream) {
  if (j.rows == 0) return;
  if (tiny(j, j.rows)) return run_panels(t, j, 0, j.panels(), 0, j.rows);
  const int64_t row_tasks = j.rows <= kTaskRows ? 1 : ceil_div(j.rows, kTaskRows);
  const int64_t chunk = row_tasks > 1 ? 1 : panel_chunk(j, 1, stream);
  const int64_t chunks = ceil_div(j.panels(), chunk);
  for_parts_dynamic(stream, static_cast<int>(chunks * row_tasks), [&](int part) {
    const int64_t c = part / row_tasks, r = part % row_tasks;
    run_panels(t, j, c * chunk, std::min((c + 1) * chunk, j.panels()), r * kTaskRows,
               std::min((r + 1) * kTaskRows, j.rows));
  });
}

class PanelFormat final : public WeightFormat {
 public:
  PanelFormat(const char* name, DType type) : name_(name), type_(type) {}
  const char* name() const override { return name_; }
  size_t packed_bytes(int64_t n, int64_t k) const override {
    Job j;
    j.w_type = type_, j.n = n, j.k = k;
    return static_cast<size_t>(j.panels() * j.panel_bytes());
  }
  int64_t row_granularity() const override { return kPanel; }
  Status pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const override;
  Status run(const LinearParams& p, device::Stream stream) const override;
  Status run_grouped(const GroupedLinearParams& p, device::Stream stream) const override;
  Status run_heads(const HeadLinearParams& p, device::Stream stream) const override;
  Status gather_rows(const PackedWeight& weight, TensorView ids, TensorView out, device::Stream stream) const override;

 private:
  void pack_panel(const KernelTable& t, const TensorView& source, int64_t row, int64_t rows, int64_t k,
                  char* panel) const;
  bool usable(const PackedWeight& w) const {
    return w.format == this && w.n > 0 && w.k > 0 && w.data.bytes() >= packed_bytes(w.n, w.k);
  }

  const char* name_;
  DType type_;
};

// Through a zero-padded copy of 64 rows by 256 k, unless the source already has the right form.
void PanelFormat::pack_panel(const KernelTable& t, const TensorView& source, int64_t row, int64_t rows, int64_t k,
                             char* panel) const {
  const auto in = static_cast<int64_t>(dtype_bytes(source.dtype)), bytes = static_cast<int64_t>(dtype_bytes(type_));
  const int64_t per_word = 4 / bytes;
  auto* words = reinterpret_cast<uint32_t*>(panel);
  if (rows == kPanel && source.dtype == type_ && k % per_word == 0) {
    t.transpose32(source.row_bytes(row), source.stride[0] * bytes, words, kPanel, kPanel, k / per_word);
    return;
  }
  alignas(64) char staged[kPanel * kKBlock * 4];
  for (int64_t k0 = 0; k0 < k; k0 += kKBlock) {
    const int64_t count = std::min(kKBlock, k - k0);
    std::memset(staged, 0, sizeof staged);
    for (int64_t r = 0; r < rows; ++r) {
      const char* src = source.row_bytes(row + r) + k0 * in;
      char* to = staged + r * kKBlock * bytes;
      if (source.dtype == type_) {
        std::memcpy(to, src, static_cast<size_t>(count * in));
      } else if (type_ == DType::kBF16) {
        t.narrow(reinterpret_cast<const float*>(src), reinterpret_cast<uint16_t*>(to), count);
      } else {
        t.widen(reinterpret_cast<const uint16_t*>(src), reinterpret_cast<float*>(to), count);
      }
    }
    t.transpose32(staged, kKBlock * bytes, words + k0 / per_word * kPanel, kPanel, kPanel, ceil_div(count, per_word));
  }
}

Status PanelFormat::pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const {
  constexpr const char* kOp = "pack";
  TERN_OP_CHECK(kOp, is_act(source.dtype) && source.rank == 2 && is_rows(source) && source.dim[1] == k && k > 0,
                "the slice must be [rows, k] of float32 or bfloat16");
  const int64_t rows = source.dim[0];
  TERN_OP_CHECK(kOp,
                row_begin >= 0 && row_begin % kPanel == 0 && row_begin + rows <= n &&
                    (rows % kPanel == 0 || row_begin + rows == n),
                "slices start at a multiple of 64 rows and only the last may be shorter");
  const KernelTable& t = kernels::kernel_table();
  Job j;
  j.w_type = type_, j.n = n, j.k = k;
  for (int64_t r = 0; r < rows; r += kPanel) {
    pack_panel(t, source, r, std::min(kPanel, rows - r), k,
               static_cast<char*>(dst) + (row_begin + r) / kPanel * j.panel_bytes());
  }
  return {};
}

Job make_job(const TensorView& x, const PackedWeight& w, DType w_type, const TensorView& out) {
  Job j;
  j.x = static_cast<const char*>(x.data), j.x_type = x.dtype;
  j.x_stride = x.stride[0] * static_cast<int64_t>(dtype_bytes(x.dtype));
  j.w = w.data.data(), j.w_type = w_type;
  j.rows = x.dim[0], j.n = w.n, j.k = w.k;
  j.out = static_cast<char*>(out.data), j.out_type = out.dtype;
  j.out_stride = out.stride[0] * static_cast<int64_t>(dtype_bytes(out.dtype));
  return j;
}

Status PanelFormat::run(const LinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "linear";
  const PackedWeight& w = *p.weight;
  TERN_OP_CHECK(kOp, usable(w), "the weight was not packed by this format");
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_matrix(p.x, p.x.dim[0], w.k), "x must be [T, K]");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], w.n), "out must be [T, N]");
  TERN_OP_CHECK(kOp, p.bias.data == nullptr || is_vector(p.bias, DType::kF32, w.n), "bias must be [N] float32");
  Job j = make_job(p.x, w, type_, p.out);
  j.bias = p.bias.as<const float>();
  run_job(kernels::kernel_table(), j, stream);
  return {};
}

Status PanelFormat::run_grouped(const GroupedLinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "grouped_linear";
  const auto experts = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  for (const PackedWeight& w : p.weights) {
    TERN_OP_CHECK(kOp, usable(w) && w.n == n && w.k == k, "the weights must be alike and packed by this format");
  }
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_matrix(p.x, p.x.dim[0], k), "x must be [S, K]");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], n), "out must be [S, N]");
  TERN_OP_CHECK(kOp, is_vector(p.offsets, DType::kI32, experts + 1), "offsets must be [E + 1] int32");
  const auto* offsets = p.offsets.as<const int32_t>();
  int64_t active = 0;
  for (int64_t e = 0; e < experts; ++e) {
    TERN_OP_CHECK(kOp, offsets[e] >= 0 && offsets[e] <= offsets[e + 1], "offsets must ascend");
    active += offsets[e] < offsets[e + 1];
  }
  TERN_OP_CHECK(kOp, offsets[experts] <= p.x.dim[0], "offsets reach beyond x");
  if (active == 0) return {};
  const KernelTable& t = kernels::kernel_table();
  const Job shape = make_job(p.x, p.weights[0], type_, p.out);
  const int64_t chunk = panel_chunk(shape, active, stream), chunks = ceil_div(shape.panels(), chunk);
  auto body = [&](int part) {
    int64_t e = 0;
    for (int64_t left = part / chunks;; ++e) {  // the expert that is number part / chunks among those with rows
      if (offsets[e] < offsets[e + 1] && left-- == 0) break;
    }
    Job j = shape;
    j.w = p.weights[static_cast<size_t>(e)].data.data();
    j.x += offsets[e] * j.x_stride, j.out += offsets[e] * j.out_stride;
    j.rows = offsets[e + 1] - offsets[e];
    const int64_t first = part % chunks * chunk;
    run_panels(t, j, first, std::min(first + chunk, j.panels()), 0, j.rows);
  };
  const int parts = static_cast<int>(active * chunks);
  for_parts_dynamic(tiny(shape, offsets[experts]) ? device::Stream{} : stream, parts, body);
  return {};
}

Status PanelFormat::run_heads(const HeadLinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "head_linear";
  const auto heads = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  for (const PackedWeight& w : p.weights) {
    TERN_OP_CHECK(kOp, usable(w) && w.n == n && w.k == k, "the weights must be alike and packed by this format");
  }
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 3 && is_rows(p.x) && p.x.dim[1] == heads && p.x.dim[2] == k,
                "x must be [T, heads, K]");
  TERN_OP_CHECK(kOp,
                is_act(p.out.dtype) && p.out.rank == 3 && is_rows(p.out) && p.out.dim[0] == p.x.dim[0] &&
                    p.out.dim[1] == heads && p.out.dim[2] == n,
                "out must be [T, heads, N]");
  if (p.x.dim[0] == 0) return {};
  const KernelTable& t = kernels::kernel_table();
  const Job shape = make_job(p.x, p.weights[0], type_, p.out);
  const int64_t chunk = panel_chunk(shape, heads, stream), chunks = ceil_div(shape.panels(), chunk);
  auto body = [&](int part) {
    const int64_t h = part / chunks, first = part % chunks * chunk;
    Job j = shape;
    j.w = p.weights[static_cast<size_t>(h)].data.data();
    j.x += h * p.x.stride[1] * static_cast<int64_t>(dtype_bytes(p.x.dtype));
    j.out += h * p.out.stride[1] * static_cast<int64_t>(dtype_bytes(p.out.dtype));
    run_panels(t, j, first, std::min(first + chunk, j.panels()), 0, j.rows);
  };
  for_parts_dynamic(tiny(shape, shape.rows * heads) ? device::Stream{} : stream, static_cast<int>(heads * chunks),
                    body);
  return {};
}

Status PanelFormat::gather_rows(const PackedWeight& w, TensorView ids, TensorView out, device::Stream stream) const {
  constexpr const char* kOp = "embedding";
  TERN_OP_CHECK(kOp, usable(w) && is_act(out.dtype) && is_matrix(out, out.dim[0], w.k), "out must be [T, K]");
  TERN_OP_CHECK(kOp, is_vector(ids, DType::kI32, out.dim[0]), "ids must be [T] int32");
  const auto* id = ids.as<const int32_t>();
  for (int64_t t = 0; t < out.dim[0]; ++t) TERN_OP_CHECK(kOp, id[t] >= 0 && id[t] < w.n, "a token id is out of range");
  Job j;
  j.w_type = type_, j.n = w.n, j.k = w.k;
  for_ranges(stream, out.dim[0], row_grain(4 * w.k), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const char* src = w.data.data() + id[t] / kPanel * j.panel_bytes() + id[t] % kPanel * 4;
      char* dst = out.row_bytes(t);
      for (int64_t k = 0; k < w.k; ++k) {
        float v;
        if (type_ == DType::kBF16) {
          bf16 b;
          std::memcpy(&b, src + k / 2 * kPanel * 4 + k % 2 * 2, sizeof b);
          v = to_float(b);
        } else {
          std::memcpy(&v, src + k * kPanel * 4, sizeof v);
        }
        if (out.dtype == DType::kBF16) {
          reinterpret_cast<bf16*>(dst)[k] = to_bf16(v);
        } else {
          reinterpret_cast<float*>(dst)[k] = v;
        }
      }
    }
  });
  return {};
}

const PanelFormat kBf16Format("bf16", DType::kBF16);
const PanelFormat kF32Format("f32", DType::kF32);

}  // namespace

const WeightFormat* find_weight_format(const char* name) {
  for (const WeightFormat* f :
       {static_cast<const WeightFormat*>(&kBf16Format), static_cast<const WeightFormat*>(&kF32Format)}) {
    if (std::strcmp(f->name(), name) == 0) return f;
  }
  return nullptr;
}

}  // namespace tern::ops::cpu
