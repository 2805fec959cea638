// Checks at the head of every op: cheap comparisons, a message only when one fails.
#pragma once

#include <string>

#include "base/error.h"
#include "device/tensor.h"

namespace tern::ops {

inline Error op_error(const char* op, const char* what) {
  return make_error(ErrorCode::kInvalidArgument, std::string(op) + ": " + what);
}

inline bool is_act(DType t) { return t == DType::kF32 || t == DType::kBF16; }
inline bool is_vector(const TensorView& v, DType t, int64_t n) {
  return v.rank == 1 && v.dtype == t && v.dim[0] == n && (n == 0 || v.data != nullptr);
}
// Rank 2 or 3 with dense inner dimensions and rows that do not overlap; data may be null only when there are no rows.
inline bool is_rows(const TensorView& v) {
  if ((v.rank != 2 && v.rank != 3) || v.dim[0] < 0 || v.dim[1] < 1 || v.stride[v.rank - 1] != 1) return false;
  if (v.rank == 3 && (v.dim[2] < 1 || v.stride[1] < v.dim[2])) return false;
  return v.dim[0] == 0 || (v.data != nullptr && (v.dim[0] == 1 || v.stride[0] >= v.stride[1] * v.dim[1]));
}
inline bool is_matrix(const TensorView& v, int64_t rows, int64_t cols) {
  return v.rank == 2 && is_rows(v) && v.dim[0] == rows && v.dim[1] == cols;
}

}  // namespace tern::ops

#define TERN_OP_CHECK(op, condition, what)                    \
  do {                                                        \
    if (!(condition)) return ::tern::ops::op_error(op, what); \
  } while (false)
