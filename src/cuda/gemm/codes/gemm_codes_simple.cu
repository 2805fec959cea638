// Codes on plain float32 units: any activation type and alignment, one weight per head; and single rows of a weight.
#include <algorithm>

#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/gemm/codes/codes_widen.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {
namespace {

constexpr int kTile = 64, kStep = 16, kThreads = 256;

// 64 x 64 values per block, 4 x 4 per thread, k ascending in one chain each. Rows [row0, row_end).
template <class X>
__device__ void codes_tile(const CodeGemm& g, const X* x, const char* w, int64_t row0, int64_t row_end, int64_t head) {
  __shared__ float xs[kStep][kTile + 1], ws[kStep][kTile + 1];
  const int col0 = static_cast<int>(blockIdx.x) * kTile;
  const int tr = threadIdx.x / 16, tc = threadIdx.x % 16;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < g.w.k; k0 += kStep) {
    for (int i = threadIdx.x; i < kTile * kStep; i += kThreads) {
      const int r = i / kStep, k = k0 + i % kStep, n = col0 + r;
      const int64_t row = row0 + r;
      const bool token = k < g.w.k && row < row_end;
      xs[i % kStep][r] = token ? as_float(x[(g.from != nullptr ? g.from[row] : row) * g.x_row + k]) : 0.0f;
      const char* stripe = w + n / kStripe * g.w.stripe_bytes();
      ws[i % kStep][r] =
          k < g.w.k && n < g.w.n ? code_at(g.w, stripe, n % kStripe, k) * scale_at(g.w, stripe, n % kStripe, k) : 0.0f;
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
      const int n = col0 + tc + 16 * j;
      if (n >= g.w.n) continue;
      const float v = acc[i][j] + (g.bias != nullptr ? g.bias[n] : 0.0f);
      const int64_t at = row * g.out_row + head * g.out_head + n;
      if (g.out_bf16) {
        static_cast<bf*>(g.out)[at] = from_float<bf>(v);
      } else {
        static_cast<float*>(g.out)[at] = v;
      }
    }
  }
}

// Grouped: a block walks over the row tiles of its expert, because how many there are only the device knows.
template <class X, int kCount>
__global__ void codes_simple_kernel(const CodeGemm g, const __grid_constant__ WeightTable<kCount> table) {
  let_next_start();
  wait_for_previous();
  const int group = blockIdx.z;
  const int64_t head = g.heads ? group : 0;
  const X* x = static_cast<const X*>(g.x) + head * g.x_head;
  const auto* w = static_cast<const char*>(table.w[kCount == 1 ? 0 : group]);
  const int64_t begin = g.offsets == nullptr ? 0 : g.offsets[group];
  const int64_t end = g.offsets == nullptr ? g.rows : g.offsets[group + 1];
  for (int64_t row0 = begin + int64_t{blockIdx.y} * kTile; row0 < end; row0 += int64_t{gridDim.y} * kTile) {
    codes_tile(g, x, w, row0, end, head);
  }
}

template <class X, int kCount>
Status launch_codes_simple(const CodeGemm& g, const void* const* weights, device::Stream stream) {
  WeightTable<kCount> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const int64_t tiles = std::min<int64_t>(blocks_for(g.rows, kTile), g.offsets != nullptr ? 4 : 65535);
  const dim3 grid(static_cast<unsigned>(blocks_for(g.w.n, kTile)), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(g.groups));
  return launch(stream, "gemm_codes_simple", {grid, kThreads}, codes_simple_kernel<X, kCount>, g, table);
}

template <class T>
__global__ void codes_rows_kernel(const CodeLayout layout, const char* w, const int32_t* ids, T* out, int64_t out_row) {
  let_next_start();
  wait_for_previous();
  const int id = ids[blockIdx.x];
  if (id < 0 || id >= layout.n) return;
  const char* stripe = w + id / kStripe * layout.stripe_bytes();
  for (int k = threadIdx.x; k < layout.k; k += static_cast<int>(blockDim.x))
    out[blockIdx.x * out_row + k] =
        from_float<T>(code_at(layout, stripe, id % kStripe, k) * scale_at(layout, stripe, id % kStripe, k));
}

}  // namespace

Status gemm_codes_simple(const CodeGemm& g, const void* const* weights, device::Stream stream) {
  return with_type(g.x_bf16 ? DType::kBF16 : DType::kF32, [&]<class X>() -> Status {
    if (g.groups == 1) return launch_codes_simple<X, 1>(g, weights, stream);
    return launch_codes_simple<X, kMaxExperts>(g, weights, stream);
  });
}

Status codes_rows(const CodeLayout& layout, const void* weight, const TensorView& ids, const TensorView& out,
                  device::Stream stream) {
  if (out.dim[0] == 0) return {};
  return with_type(out.dtype, [&]<class T>() {
    return launch(stream, "codes_rows", {dim3(static_cast<unsigned>(out.dim[0])), 256}, codes_rows_kernel<T>, layout,
                  static_cast<const char*>(weight), ids.as<const int32_t>(), out.as<T>(), out.stride[0]);
  });
}

}  // namespace tern::cuda
