// A look at memory: pointer, type, sizes, strides. Owns nothing; ops take these by value.
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "base/check.h"
#include "device/dtype.h"

namespace tern {

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  int64_t dim[4] = {0, 0, 0, 0};
  int64_t stride[4] = {0, 0, 0, 0};  // in elements; the last one is 1 everywhere in this program

  bool empty() const { return data == nullptr || numel() == 0; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim[i];
    return rank == 0 ? 0 : n;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // Row `i` of the first dimension.
  char* row_bytes(int64_t i) const {
    return static_cast<char*>(data) + i * stride[0] * static_cast<int64_t>(dtype_bytes(dtype));
  }
  // The first `n` entries of the first dimension.
  TensorView first(int64_t n) const {
    TERN_CHECK(rank > 0 && n <= dim[0]);
    TensorView v = *this;
    v.dim[0] = n;
    return v;
  }
  // Columns [begin, end) of a rank-2 view; the row stride stays.
  TensorView columns(int64_t begin, int64_t end) const {
    TERN_CHECK(rank == 2 && begin <= end && end <= dim[1]);
    TensorView v = *this;
    v.data = static_cast<char*>(data) + begin * static_cast<int64_t>(dtype_bytes(dtype));
    v.dim[1] = end - begin;
    return v;
  }
  // A rank-2 view [n, a*b] seen as [n, a, b].
  TensorView split(int64_t a, int64_t b) const {
    TERN_CHECK(rank == 2 && a * b == dim[1]);
    TensorView v = *this;
    v.rank = 3;
    v.dim[1] = a, v.dim[2] = b;
    v.stride[1] = b, v.stride[2] = 1;
    return v;
  }
};

inline TensorView tensor1(void* data, DType t, int64_t n) { return {data, t, 1, {n, 0, 0, 0}, {1, 0, 0, 0}}; }
inline TensorView tensor2(void* data, DType t, int64_t rows, int64_t cols, int64_t row_stride = 0) {
  return {data, t, 2, {rows, cols, 0, 0}, {row_stride ? row_stride : cols, 1, 0, 0}};
}

}  // namespace tern
