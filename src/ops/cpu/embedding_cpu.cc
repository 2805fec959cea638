#include <atomic>
#include <cstring>

#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

// One row from one activation type to the other.
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

Status embedding(const EmbeddingParams& p, device::Stream stream) {
  constexpr const char* kOp = "embedding";
  const int64_t n = p.out.dim[0];
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && p.out.rank == 2 && is_rows(p.out),
                "out must be [T, H] of float32 or bfloat16");
  TERN_OP_CHECK(kOp, is_vector(p.ids, DType::kI32, n), "ids must be [T] int32");
  if (p.packed != nullptr) {
    TERN_OP_CHECK(kOp, p.packed->valid() && p.packed->k == p.out.dim[1], "the packed table must be [V, H]");
    return p.packed->format->gather_rows(*p.packed, p.ids, p.out, stream);
  }
  TERN_OP_CHECK(kOp, is_act(p.table.dtype) && p.table.rank == 2 && is_rows(p.table) && p.table.dim[1] == p.out.dim[1],
                "table must be [V, H] of float32 or bfloat16");
  const auto* ids = p.ids.as<const int32_t>();
  for (int64_t t = 0; t < n; ++t) {
    TERN_OP_CHECK(kOp, ids[t] >= 0 && ids[t] < p.table.dim[0], "a token id is out of range");
  }
  const auto& k = kernels::kernel_table();
  for_ranges(stream, n, row_grain(p.out.dim[1]), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      copy_row(k, p.table.row_bytes(ids[t]), p.table.dtype, p.out.row_bytes(t), p.out.dtype, p.out.dim[1]);
    }
  });
  return {};
}

Status vocabulary_ids(const VocabularyIdsParams& p, device::Stream) {
  constexpr const char* kOp = "vocabulary_ids";
  const int64_t n = p.ids.dim[0];
  TERN_OP_CHECK(kOp, is_vector(p.ids, DType::kI32, n) && is_vector(p.local, DType::kI32, n),
                "ids and local must be [T] int32");
  const auto* ids = p.ids.as<const int32_t>();
  auto* local = p.local.as<int32_t>();
  for (int64_t t = 0; t < n; ++t) {
    TERN_OP_CHECK(kOp, ids[t] >= 0 && ids[t] < p.vocab, "a token id is out of range");
    const int64_t id = ids[t] - p.first;
    local[t] = id >= 0 && id < p.count ? static_cast<int32_t>(id) : 0;
  }
  return {};
}

Status clear_foreign_rows(const ClearForeignRowsParams& p, device::Stream) {
  constexpr const char* kOp = "clear_foreign_rows";
  const int64_t n = p.ids.dim[0];
  TERN_OP_CHECK(kOp, is_vector(p.ids, DType::kI32, n), "ids must be [T] int32");
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 2 && p.x.dim[0] == n && is_rows(p.x),
                "x must be [T, H] of float32 or bfloat16");
  for (int64_t t = 0; t < n; ++t) {
    const int64_t id = p.ids.as<const int32_t>()[t] - p.first;
    if (id < 0 || id >= p.count)
      std::memset(p.x.row_bytes(t), 0, static_cast<size_t>(p.x.dim[1]) * dtype_bytes(p.x.dtype));
  }
  return {};
}

Status resolve_ids(const ResolveIdsParams& p, device::Stream) {
  constexpr const char* kOp = "resolve_ids";
  const int64_t n = p.ids.dim[0];
  TERN_OP_CHECK(kOp, is_vector(p.ids, DType::kI32, n) && is_vector(p.source, DType::kI32, n),
                "ids and source must be [T] int32");
  TERN_OP_CHECK(kOp, p.previous.rank == 0 || is_vector(p.previous, DType::kI32, p.previous.dim[0]),
                "previous must be [P] int32");
  const int64_t previous = p.previous.rank == 0 ? 0 : p.previous.dim[0];
  auto* ids = p.ids.as<int32_t>();
  const auto *source = p.source.as<const int32_t>(), *from = p.previous.as<const int32_t>();
  for (int64_t t = 0; t < n; ++t) {
    TERN_OP_CHECK(kOp, source[t] < previous, "source names a row that previous does not have");
    if (source[t] >= 0) ids[t] = from[source[t]];
  }
  if (p.changes.rank == 0) return {};
  TERN_OP_CHECK(kOp, changes_fit(p), "changes must be [C, 2] int32, table [R, B] int32");
  const auto* change = p.changes.as<const int32_t>();
  for (int64_t i = 0; i < p.changes.dim[0]; ++i, change += 2) {
    TERN_OP_CHECK(kOp, change[0] < p.table.dim[0] * p.table.dim[1], "a change lies outside the table");
    if (change[0] >= 0) p.table.as<int32_t>()[change[0]] = change[1];
  }
  return {};
}

Status gather_rows(const GatherRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "gather_rows";
  const int64_t n = p.out.dim[0];
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 2 && is_rows(p.x), "x must be [T, H] of float32 or bfloat16");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, n, p.x.dim[1]), "out must be [L, H]");
  TERN_OP_CHECK(kOp, is_vector(p.rows, DType::kI32, n), "rows must be [L] int32");
  const auto* rows = p.rows.as<const int32_t>();
  for (int64_t i = 0; i < n; ++i) {
    TERN_OP_CHECK(kOp, rows[i] >= 0 && rows[i] < p.x.dim[0], "a row is out of range");
  }
  const auto& k = kernels::kernel_table();
  for_ranges(stream, n, row_grain(p.x.dim[1]), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      copy_row(k, p.x.row_bytes(rows[i]), p.x.dtype, p.out.row_bytes(i), p.out.dtype, p.x.dim[1]);
    }
  });
  return {};
}

}  // namespace tern::ops::cpu
