#include "ops/cpu/panel_format.h"

#include <algorithm>

#include "ops/op_check.h"

namespace tern::ops::cpu {

using kernels::KernelTable;

Status PanelFormat::check_slice(const TensorView& source, int64_t row_begin, int64_t n, int64_t k) {
  constexpr const char* kOp = "pack";
  TERN_OP_CHECK(kOp, is_act(source.dtype) && source.rank == 2 && is_rows(source) && source.dim[1] == k && k > 0,
                "the slice must be [rows, k] of float32 or bfloat16");
  const int64_t rows = source.dim[0];
  TERN_OP_CHECK(kOp,
                row_begin >= 0 && row_begin % kPanel == 0 && row_begin + rows <= n &&
                    (rows % kPanel == 0 || row_begin + rows == n),
                "slices start at a multiple of 64 rows and only the last may be shorter");
  return {};
}

PanelJob PanelFormat::make_job(const TensorView& x, const PackedWeight& w, const TensorView& out) const {
  PanelJob j;
  j.x = static_cast<const char*>(x.data), j.x_type = x.dtype;
  j.x_stride = x.stride[0] * static_cast<int64_t>(dtype_bytes(x.dtype));
  j.w = w.data.data(), j.layout = layout_, j.first_group = w.first_group;
  j.rows = x.dim[0], j.n = w.n, j.k = w.k;
  j.out = static_cast<char*>(out.data), j.out_type = out.dtype;
  j.out_stride = out.stride[0] * static_cast<int64_t>(dtype_bytes(out.dtype));
  return j;
}

bool PanelFormat::alike(std::span<const PackedWeight> weights) const {
  const PackedWeight& first = weights[0];
  return std::ranges::all_of(weights, [&](const PackedWeight& w) {
    return usable(w) && w.n == first.n && w.k == first.k && w.first_group == first.first_group;
  });
}

Status PanelFormat::run(const LinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "linear";
  const PackedWeight& w = *p.weight;
  TERN_OP_CHECK(kOp, usable(w), "the weight was not packed by this format");
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_matrix(p.x, p.x.dim[0], w.k), "x must be [T, K]");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], w.n), "out must be [T, N]");
  TERN_OP_CHECK(kOp, p.bias.data == nullptr || is_vector(p.bias, DType::kF32, w.n), "bias must be [N] float32");
  PanelJob j = make_job(p.x, w, p.out);
  j.bias = p.bias.as<const float>();
  run_job(kernels::kernel_table(), j, stream);
  return {};
}

Status PanelFormat::run_grouped(const GroupedLinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "grouped_linear";
  const auto experts = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  TERN_OP_CHECK(kOp, alike(p.weights), "the weights must be alike and packed by this format");
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
  const PanelJob shape = make_job(p.x, p.weights[0], p.out);
  const int64_t chunk = panel_chunk(shape, active, stream), chunks = ceil_div(shape.panels(), chunk);
  auto body = [&](int part) {
    int64_t e = 0;
    for (int64_t left = part / chunks;; ++e) {  // the expert that is number part / chunks among those with rows
      if (offsets[e] < offsets[e + 1] && left-- == 0) break;
    }
    PanelJob j = shape;
    j.w = p.weights[static_cast<size_t>(e)].data.data();
    j.x += offsets[e] * j.x_stride, j.out += offsets[e] * j.out_stride;
    j.rows = offsets[e + 1] - offsets[e];
    const int64_t first = part % chunks * chunk;
    run_panels(t, j, first, std::min(first + chunk, j.panels()), 0, j.rows);
  };
  const int parts = static_cast<int>(active * chunks);
  for_parts_dynamic(shape.tiny(offsets[experts]) ? device::Stream{} : stream, parts, body);
  return {};
}

Status PanelFormat::run_heads(const HeadLinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "head_linear";
  const auto heads = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  TERN_OP_CHECK(kOp, alike(p.weights), "the weights must be alike and packed by this format");
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 3 && is_rows(p.x) && p.x.dim[1] == heads && p.x.dim[2] == k,
                "x must be [T, heads, K]");
  TERN_OP_CHECK(kOp,
                is_act(p.out.dtype) && p.out.rank == 3 && is_rows(p.out) && p.out.dim[0] == p.x.dim[0] &&
                    p.out.dim[1] == heads && p.out.dim[2] == n,
                "out must be [T, heads, N]");
  if (p.x.dim[0] == 0) return {};
  const KernelTable& t = kernels::kernel_table();
  const PanelJob shape = make_job(p.x, p.weights[0], p.out);
  const int64_t chunk = panel_chunk(shape, heads, stream), chunks = ceil_div(shape.panels(), chunk);
  auto body = [&](int part) {
    const int64_t h = part / chunks, first = part % chunks * chunk;
    PanelJob j = shape;
    j.w = p.weights[static_cast<size_t>(h)].data.data();
    j.x += h * p.x.stride[1] * static_cast<int64_t>(dtype_bytes(p.x.dtype));
    j.out += h * p.out.stride[1] * static_cast<int64_t>(dtype_bytes(p.out.dtype));
    run_panels(t, j, first, std::min(first + chunk, j.panels()), 0, j.rows);
  };
  for_parts_dynamic(shape.tiny(shape.rows * heads) ? device::Stream{} : stream, static_cast<int>(heads * chunks), body);
  return {};
}

}  // namespace tern::ops::cpu
