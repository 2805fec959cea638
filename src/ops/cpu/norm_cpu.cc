#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {

Status rms_norm(const RmsNormParams& p, device::Stream stream) {
  constexpr const char* kOp = "rms_norm";
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_rows(p.x), "x must be [T, H] or [T, heads, D] of float32 or bfloat16");
  const TensorView &x = p.x, &out = p.out;
  const int64_t inner = x.rank == 3 ? x.dim[1] : 1, n = x.dim[x.rank - 1];
  TERN_OP_CHECK(kOp,
                is_act(out.dtype) && is_rows(out) && out.rank == x.rank && out.dim[0] == x.dim[0] &&
                    out.dim[1] == x.dim[1] && out.dim[2] == x.dim[2],
                "out must be shaped like x");
  TERN_OP_CHECK(kOp, is_act(p.weight.dtype) && is_vector(p.weight, p.weight.dtype, n), "weight must be [H]");
  const bool residual = p.residual.data != nullptr;
  TERN_OP_CHECK(kOp, !residual || (x.rank == 2 && p.residual.dtype == x.dtype && is_matrix(p.residual, x.dim[0], n)),
                "residual must be like x");
  const auto& k = kernels::kernel_table();
  const auto bytes = static_cast<int64_t>(dtype_bytes(x.dtype)),
             out_bytes = static_cast<int64_t>(dtype_bytes(out.dtype));
  for_ranges(stream, x.dim[0], row_grain(inner * n), [&](int64_t begin, int64_t end) {
    kernels::RmsNormRow row{};
    row.weight = p.weight.data;
    row.n = n;
    row.eps = p.eps;
    row.bf16 = x.dtype == DType::kBF16;
    row.weight_bf16 = p.weight.dtype == DType::kBF16;
    row.out_bf16 = out.dtype == DType::kBF16;
    for (int64_t t = begin; t < end; ++t) {
      row.residual = residual ? p.residual.row_bytes(t) : nullptr;
      for (int64_t h = 0; h < inner; ++h) {
        row.x = x.row_bytes(t) + h * x.stride[1] * bytes * (x.rank == 3);
        row.out = out.row_bytes(t) + h * out.stride[1] * out_bytes * (x.rank == 3);
        k.rms_norm_row(&row);
      }
    }
  });
  return {};
}

Status silu_mul(const SiluMulParams& p, device::Stream stream) {
  constexpr const char* kOp = "silu_mul";
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && p.out.rank == 2 && is_rows(p.out),
                "out must be [T, I] of float32 or bfloat16");
  const int64_t n = p.out.dim[1];
  TERN_OP_CHECK(kOp, is_act(p.gate_up.dtype) && is_matrix(p.gate_up, p.out.dim[0], 2 * n),
                "gate_up must be [T, 2 * I] of float32 or bfloat16");
  const auto& k = kernels::kernel_table();
  const auto bytes = static_cast<int64_t>(dtype_bytes(p.gate_up.dtype));
  const auto out_bytes = static_cast<int64_t>(dtype_bytes(p.out.dtype));
  int64_t first = 0, rows = p.out.dim[0];
  if (p.range.data != nullptr) {
    TERN_OP_CHECK(kOp, p.range.dim[0] >= 1 && is_vector(p.range, DType::kI32, p.range.dim[0]),
                  "range must be [n] int32");
    const auto* range = p.range.as<const int32_t>();
    first = range[0], rows = range[p.range.dim[0] - 1] - first;
    TERN_OP_CHECK(kOp, first >= 0 && rows >= 0 && first + rows <= p.out.dim[0], "the range is not one of rows");
  }
  // A single row is cut too: columns are independent.
  const int64_t pieces = rows == 1 && n >= 8192 ? thread_count(stream) : 1;
  for_ranges(stream, rows * pieces, pieces > 1 ? 1 : row_grain(4 * n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = first + i / pieces, c0 = n * (i % pieces) / pieces, c1 = n * (i % pieces + 1) / pieces;
      const char* gate = p.gate_up.row_bytes(t) + c0 * bytes;
      k.silu_mul_row(gate, gate + n * bytes, p.out.row_bytes(t) + c0 * out_bytes, p.gate_up.dtype == DType::kBF16,
                     p.out.dtype == DType::kBF16, c1 - c0);
    }
  });
  return {};
}

}  // namespace tern::ops::cpu
