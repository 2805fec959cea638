// The order of weight-only codes in a tensor of Paddle's weight_quantize, which is that of one kind of tensor cores.
#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace tern::model {

struct WeightOnlyLayout {
  int bits = 8;               // 8, or 4: two codes a byte
  bool columns_only = false;  // for compute capability 7.0; else 7.5 and newer
  int64_t n = 0, k = 0;       // of the matrix [out, in]

  // Whether such a matrix can be laid out so: multiples of 16 rows and, but for columns_only, of 64 columns.
  bool possible() const;
  int64_t bytes() const { return n * k / (8 / bits); }
  // Codes of rows [row, row + to.rows) and columns [col, col + to.cols), without their bias: a byte each, two's
  // complement.
  void read(const char* tensor, int64_t row, int64_t col, TensorView to) const;
};

}  // namespace tern::model
