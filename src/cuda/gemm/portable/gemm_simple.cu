// Products on plain float32 units: any activation and weight type, any alignment. And few rows: a warp per column.
#include <algorithm>

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kTile = 64, kStep = 16, kThreads = 256;

template <class T>
__device__ __forceinline__ float at(const void* p, int64_t i) {
  return as_float(static_cast<const T*>(p)[i]);
}

__device__ void store(const Gemm& g, int64_t offset, int64_t col, float v) {
  if (g.bias != nullptr) v += g.bias[col];
  if (g.out_bf16) {
    static_cast<bf*>(g.out)[offset + col] = from_float<bf>(v);
  } else {
    static_cast<float*>(g.out)[offset + col] = v;
  }
}

// 64 x 64 values per block, 4 x 4 per thread, k ascending in one chain each. Rows [row0, row_end).
template <class X, class W>
__device__ void simple_tile(const Gemm& g, const X* x, const W* w, int64_t row0, int64_t row_end, int64_t head) {
  __shared__ float xs[kStep][kTile + 1], ws[kStep][kTile + 1];
  const int64_t col0 = int64_t{blockIdx.x} * kTile;
  const int tr = threadIdx.x / 16, tc = threadIdx.x % 16;
  float acc[4][4] = {};
  for (int64_t k0 = 0; k0 < g.k; k0 += kStep) {
    for (int i = threadIdx.x; i < kTile * kStep; i += kThreads) {
      const int r = i / kStep, k = i % kStep;
      const bool in = k0 + k < g.k;
      xs[k][r] = in && row0 + r < row_end ? as_float(x[(row0 + r) * g.x_row + k0 + k]) : 0.0f;
      ws[k][r] = in && col0 + r < g.n ? as_float(w[(col0 + r) * g.w_row + k0 + k]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += xs[k][tr + 16 * i] * ws[k][tc + 16 * j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t row = row0 + tr + 16 * i;
    if (row >= row_end) continue;
    for (int j = 0; j < 4; ++j) {
      const int64_t col = col0 + tc + 16 * j;
      if (col < g.n) store(g, row * g.out_row + head * g.out_head, col, acc[i][j]);
    }
  }
}

// Grouped: a block walks over the row tiles of its expert, because how many there are only the device knows.
template <class X, class W, int kCount>
__global__ void simple_kernel(const Gemm g, const __grid_constant__ WeightTable<kCount> table) {
  let_next_start();
  wait_for_previous();
  const int group = blockIdx.z;
  const int64_t head = g.heads ? group : 0;
  const X* x = static_cast<const X*>(g.x) + head * g.x_head;
  const W* w = static_cast<const W*>(table.w[kCount == 1 ? 0 : group]);
  const int64_t begin = g.offsets == nullptr ? 0 : g.offsets[group];
  const int64_t end = g.offsets == nullptr ? g.rows : g.offsets[group + 1];
  for (int64_t row0 = begin + int64_t{blockIdx.y} * kTile; row0 < end; row0 += int64_t{gridDim.y} * kTile) {
    simple_tile(g, x, w, row0, end, head);
  }
}

template <class X, class W, int kCount>
Status launch_simple(const Gemm& g, const void* const* weights, device::Stream stream) {
  WeightTable<kCount> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const int64_t tiles = std::min<int64_t>(blocks_for(g.rows, kTile), g.offsets != nullptr ? 4 : 65535);
  const dim3 grid(static_cast<unsigned>(blocks_for(g.n, kTile)), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(g.groups));
  return launch(stream, "gemm_simple", {grid, kThreads}, simple_kernel<X, W, kCount>, g, table);
}

// y[r, n] for up to kRows rows: a warp per column reads the weight row once, 16 or 32 bytes per lane and turn.
template <class X, class W, int kRows>
__global__ void gemv_kernel(const Gemm g, const W* w) {
  let_next_start();
  wait_for_previous();
  const int64_t n = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (n >= g.n) return;
  const int lane = threadIdx.x & 31;
  const W* row = w + n * g.w_row;
  const X* x = static_cast<const X*>(g.x);
  float acc[kRows] = {};
#pragma unroll 4
  for (int64_t k = lane * 8; k < g.k; k += 256) {
    const Vec8 a = load8(row + k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= g.rows) break;
      const Vec8 b = load8(x + r * g.x_row + k);
#pragma unroll
      for (int i = 0; i < 8; ++i) acc[r] += a.v[i] * b.v[i];
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float v = warp_sum(acc[r]);
    if (lane == 0 && r < g.rows) store(g, r * g.out_row, n, v);
  }
}

template <class X, class W>
Status launch_gemv(const Gemm& g, const void* weight, device::Stream stream) {
  const Shape shape{dim3(static_cast<unsigned>(blocks_for(g.n, 4))), 128};
  const auto* w = static_cast<const W*>(weight);
  if (g.rows == 1) return launch(stream, "gemv", shape, gemv_kernel<X, W, 1>, g, w);
  return launch(stream, "gemv", shape, gemv_kernel<X, W, kGemvRows>, g, w);
}

// f.operator()<X, W>() for the types of the product.
template <class F>
auto with_types(const Gemm& g, F&& f) {
  return with_type(g.x_bf16 ? DType::kBF16 : DType::kF32, [&]<class X>() {
    return with_type(g.w_bf16 ? DType::kBF16 : DType::kF32, [&]<class W>() { return f.template operator()<X, W>(); });
  });
}

}  // namespace

Status gemm_simple(const Gemm& g, const void* const* weights, device::Stream stream) {
  return with_types(g, [&]<class X, class W>() -> Status {
    if (g.groups == 1) return launch_simple<X, W, 1>(g, weights, stream);
    return launch_simple<X, W, kMaxExperts>(g, weights, stream);
  });
}

Status gemv(const Gemm& g, const void* weight, device::Stream stream) {
  return with_types(g, [&]<class X, class W>() { return launch_gemv<X, W>(g, weight, stream); });
}

// The tile by how many rows a weight meets; the sums are the same in all of them.
Status gemm_mma(const Gemm& g, const void* const* weights, device::Stream stream) {
  const int64_t rows = g.offsets != nullptr ? g.rows / g.groups : g.rows;
  if (rows <= 32) return launch_mma_16(g, weights, stream);
  const int64_t large = blocks_for(rows, 128) * blocks_for(g.n, 128) * g.groups;
  if (rows <= 64 || large < state(stream).multiprocessors) return launch_mma_64(g, weights, stream);
  return launch_mma_128(g, weights, stream);
}

}  // namespace tern::cuda
