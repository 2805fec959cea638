// Products as cases of tables: shapes, a GPU, and the kernel that they are to take.
#pragma once

#include <gtest/gtest.h>

#include "cuda/gemm/choice.h"
#include "cuda/gemm/choice_grouped.h"
#include "cuda/gemm/fits.h"

namespace tern::cuda::choice_test {

// An H100, its compute stream, with cuBLASLt.
inline GemmFacts h100() {
  GemmFacts f;
  f.multiprocessors = 132, f.arch = 90, f.smem_limit = 227 * 1024;
  f.library = f.parts = f.waits = true;
  f.clusters = {.large_tile_slim = 30, .large_tile_64 = 30, .large_tile_128 = 30, .gate_narrow = 30, .gate_small = 30};
  return f;
}
inline GemmFacts deterministic() {
  GemmFacts f = h100();
  f.deterministic = true, f.library = false, f.clusters = {};
  return f;
}
inline GemmFacts a100() {
  GemmFacts f;
  f.multiprocessors = 108, f.smem_limit = 163 * 1024, f.library = true;
  return f;
}

// bf16 rows and weight, float32 sums.
inline Gemm gemm(int64_t rows, int64_t n, int64_t k) {
  Gemm g;
  g.rows = rows, g.n = n, g.k = k, g.x_row = g.w_row = k, g.out_row = n, g.out_bf16 = false;
  return g;
}
// Rows [gate, up] of the weight, bf16 results.
inline Gemm gated(int64_t rows, int64_t n, int64_t k) {
  Gemm g = gemm(rows, n, k);
  g.gated = true, g.out_bf16 = true, g.out_row = n / 2;
  return g;
}

}  // namespace tern::cuda::choice_test
