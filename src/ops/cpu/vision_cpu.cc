#include <cstring>
#include <vector>

#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

static_assert(static_cast<int>(Activation::kGeluErf) == kernels::kGeluErfRow &&
              static_cast<int>(Activation::kGeluTanh) == kernels::kGeluTanhRow &&
              static_cast<int>(Activation::kQuickGelu) == kernels::kQuickGeluRow &&
              static_cast<int>(Activation::kSilu) == kernels::kSiluRow &&
              static_cast<int>(Activation::kRelu) == kernels::kReluRow &&
              static_cast<int>(Activation::kNone) == kernels::kNoneRow);

bool is_act_matrix(const TensorView& v) { return is_act(v.dtype) && v.rank == 2 && is_rows(v); }

void copy_row(const kernels::KernelTable& k, const char* src, DType from, char* dst, DType to, int64_t n) {
  if (from == to) {
    std::memcpy(dst, src, static_cast<size_t>(n) * dtype_bytes(from));
  } else if (to == DType::kF32) {
    k.widen(reinterpret_cast<const uint16_t*>(src), reinterpret_cast<float*>(dst), n);
  } else {
    k.narrow(reinterpret_cast<const float*>(src), reinterpret_cast<uint16_t*>(dst), n);
  }
}

}  // namespace

Status layer_norm(const LayerNormParams& p, device::Stream stream) {
  constexpr const char* kOp = "layer_norm";
  TERN_OP_CHECK(kOp, is_act_matrix(p.x), "x must be [T, H] of float32 or bfloat16");
  const int64_t rows = p.x.dim[0], n = p.x.dim[1];
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, rows, n), "out must be shaped like x");
  TERN_OP_CHECK(
      kOp, is_act(p.weight.dtype) && is_vector(p.weight, p.weight.dtype, n) && is_vector(p.bias, p.weight.dtype, n),
      "weight and bias must be [H] of one type");
  const bool residual = p.residual.data != nullptr;
  TERN_OP_CHECK(kOp,
                !residual || ((p.residual.dtype == p.x.dtype || p.residual.dtype == DType::kF32) &&
                              is_matrix(p.residual, rows, n)),
                "residual must be like x, or float32");
  const bool widens = residual && p.residual.dtype != p.x.dtype;
  const auto& k = kernels::kernel_table();
  for_ranges(stream, rows, row_grain(n), [&](int64_t begin, int64_t end) {
    kernels::LayerNormRow row{};
    row.weight = p.weight.data, row.bias = p.bias.data;
    row.n = n, row.eps = p.eps;
    row.bf16 = p.x.dtype == DType::kBF16 && !widens;
    std::vector<float> wide(static_cast<size_t>(widens ? n : 0));
    row.weight_bf16 = p.weight.dtype == DType::kBF16;
    row.out_bf16 = p.out.dtype == DType::kBF16;
    for (int64_t t = begin; t < end; ++t) {
      row.x = p.x.row_bytes(t), row.out = p.out.row_bytes(t);
      row.residual = residual ? p.residual.row_bytes(t) : nullptr;
      if (widens) {
        k.widen(reinterpret_cast<const uint16_t*>(p.x.row_bytes(t)), wide.data(), n);
        row.x = wide.data();
      }
      k.layer_norm_row(&row);
    }
  });
  return {};
}

Status activate(const ActivateParams& p, device::Stream stream) {
  constexpr const char* kOp = "activate";
  TERN_OP_CHECK(kOp, is_act_matrix(p.x), "x must be [T, N] of float32 or bfloat16");
  const int64_t n = p.x.dim[1];
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], n), "out must be shaped like x");
  TERN_OP_CHECK(kOp, p.kind <= Activation::kNone, "there is no such activation");
  const auto& k = kernels::kernel_table();
  for_ranges(stream, p.x.dim[0], row_grain(4 * n), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      k.activate_row(p.x.row_bytes(t), p.out.row_bytes(t), static_cast<int>(p.kind), p.x.dtype == DType::kBF16,
                     p.out.dtype == DType::kBF16, n);
    }
  });
  return {};
}

Status take_rows(const TakeRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "take_rows";
  TERN_OP_CHECK(kOp, is_act_matrix(p.out), "out must be [T, H] of float32 or bfloat16");
  const int64_t tokens = p.out.dim[0], n = p.out.dim[1];
  TERN_OP_CHECK(kOp, is_vector(p.rows, DType::kI32, tokens), "rows must be [T] int32");
  const bool any = p.x.data != nullptr;
  TERN_OP_CHECK(kOp, !any || (is_act_matrix(p.x) && p.x.dim[1] == n), "x must be [P, H] of float32 or bfloat16");
  const int64_t most = any ? p.x.dim[0] : 0;
  const auto* rows = p.rows.as<const int32_t>();
  for (int64_t t = 0; t < tokens; ++t) TERN_OP_CHECK(kOp, rows[t] < most, "a row is out of range");
  const auto& k = kernels::kernel_table();
  for_ranges(stream, tokens, row_grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (rows[t] >= 0) copy_row(k, p.x.row_bytes(rows[t]), p.x.dtype, p.out.row_bytes(t), p.out.dtype, n);
    }
  });
  return {};
}

Status scatter_rows(const ScatterRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "scatter_rows";
  TERN_OP_CHECK(kOp, is_act_matrix(p.x), "x must be [N, H] of float32 or bfloat16");
  const int64_t count = p.x.dim[0], n = p.x.dim[1];
  TERN_OP_CHECK(kOp, is_act_matrix(p.out) && p.out.dim[1] == n, "out must be [P, H] of float32 or bfloat16");
  TERN_OP_CHECK(kOp, is_vector(p.rows, DType::kI32, count), "rows must be [N] int32");
  const auto* rows = p.rows.as<const int32_t>();
  for (int64_t i = 0; i < count; ++i) TERN_OP_CHECK(kOp, rows[i] < p.out.dim[0], "a row is out of range");
  const auto& k = kernels::kernel_table();
  for_ranges(stream, count, row_grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (rows[i] >= 0) copy_row(k, p.x.row_bytes(i), p.x.dtype, p.out.row_bytes(rows[i]), p.out.dtype, n);
    }
  });
  return {};
}

Status interpolate_rows(const InterpolateRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "interpolate_rows";
  TERN_OP_CHECK(kOp, is_act_matrix(p.table), "table must be [R, H] of float32 or bfloat16");
  const int64_t tokens = p.out.dim[0], n = p.table.dim[1], j = p.rows.dim[1];
  TERN_OP_CHECK(kOp, p.out.dtype == DType::kF32 && is_matrix(p.out, tokens, n), "out must be [T, H] float32");
  TERN_OP_CHECK(kOp,
                p.rows.dtype == DType::kI32 && p.rows.rank == 2 && is_matrix(p.rows, tokens, j) && j <= 16 &&
                    (tokens <= 1 || p.rows.stride[0] == j),
                "rows must be [T, J] int32, contiguous");
  TERN_OP_CHECK(
      kOp,
      p.weights.dtype == DType::kF32 && is_matrix(p.weights, tokens, j) && (tokens <= 1 || p.weights.stride[0] == j),
      "weights must be [T, J] float32, contiguous");
  const auto* rows = p.rows.as<const int32_t>();
  for (int64_t i = 0; i < tokens * j; ++i) {
    TERN_OP_CHECK(kOp, rows[i] >= 0 && rows[i] < p.table.dim[0], "a row is out of range");
  }
  const auto& k = kernels::kernel_table();
  for_ranges(stream, tokens, row_grain(n * j), [&](int64_t begin, int64_t end) {
    kernels::InterpolateRow row{};
    row.table = static_cast<const char*>(p.table.data);
    row.table_stride = p.table.stride[0] * static_cast<int64_t>(dtype_bytes(p.table.dtype));
    row.k = j, row.n = n;
    row.table_bf16 = p.table.dtype == DType::kBF16;
    for (int64_t t = begin; t < end; ++t) {
      row.rows = rows + t * j;
      row.weights = p.weights.as<const float>() + t * j;
      row.out = reinterpret_cast<float*>(p.out.row_bytes(t));
      k.interpolate_row(&row);
    }
  });
  return {};
}

}  // namespace tern::ops::cpu
