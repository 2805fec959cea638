// Products on both sides, compared: what the tests of all groups of products share.
#pragma once

#include <vector>

#include "cuda/tests/harness.h"
#include "ops/linear.h"

namespace tern::cuda_test {

struct Weights {
  std::vector<ops::PackedWeight> cpu, gpu;
};

// `count` random weights [n, k], packed by both sides; empty when one could not, which is reported.
Weights pack(Context& c, const char* format, DType source_type, int count, int64_t n, int64_t k, uint32_t seed);

// x [rows, k] times a weight [n, k]; rows of x lie `pad` values further apart than k. `kernel`: which one has to run;
// null: any.
void plain(Context& c, const char* format, DType x_type, DType out_type, int64_t rows, int64_t n, int64_t k, bool bias,
           int64_t pad, const char* kernel);

// Rows alone give the same bits as rows among others: all tiles sum in one order. With a gate behind the product, too.
void same_bits(Context& c, int64_t width, int64_t k, bool gate = false, DType type = DType::kF32);

// A product and its gate: in one kernel or in two, the same bits where the product is the same.
void gated(Context& c, int64_t rows, int64_t half, int64_t k, bool bias, const char* kernel,
           DType between_type = DType::kF32);

}  // namespace tern::cuda_test
