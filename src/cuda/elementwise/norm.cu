// RMS norm and residual sums. A block per row, whose values stay in registers when rows are aligned; a warp
// per row when rows are short (norms of heads).
#include "cuda/elementwise/norm_parts.h"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kWarpRow = 512;  // rows up to this are a warp's

template <class T, class W, class O>
struct NormArgs {
  const T* x;
  T* residual;
  const W* weight;
  O* out;
  int64_t rows, inner, n;
  int64_t x_row, x_inner, r_row, out_row, out_inner;  // strides in elements
  float eps;
  int64_t more;  // from x to the next part of it, all of which are added up; kMore of them
};

// Sums over the threads that share a row.
struct WarpGroup {
  static constexpr int kSize = 32;
  __device__ static int lane() { return threadIdx.x & 31; }
  __device__ static float sum(float v, float*) { return warp_sum(v); }
};
struct BlockGroup {
  static constexpr int kSize = kThreads;
  __device__ static int lane() { return threadIdx.x; }
  __device__ static float sum(float v, float* scratch) { return block_sum(v, scratch); }
};

// The row with the residual added; what the norm reads afterwards.
template <class G, class T>
__device__ const T* add_residual(const T* x, T* residual, int64_t n) {
  if (residual == nullptr) return x;
  for (int64_t i = G::lane(); i < n; i += G::kSize) {
    residual[i] = from_float<T>(as_float(residual[i]) + as_float(x[i]));
  }
  return residual;  // a thread reads back only what it wrote
}

template <class G, class T, class W, class O>
__device__ void rms_row(const NormArgs<T, W, O>& a, const T* x, O* out, float* scratch) {
  float sum = 0.0f;
  for (int64_t i = G::lane(); i < a.n; i += G::kSize) sum += as_float(x[i]) * as_float(x[i]);
  const float r = 1.0f / sqrtf(G::sum(sum, scratch) / static_cast<float>(a.n) + a.eps);
  for (int64_t i = G::lane(); i < a.n; i += G::kSize) {
    out[i] = from_float<O>(rounded<T>(as_float(x[i]) * r) * as_float(a.weight[i]));
  }
}

template <class G, class T, class W, class O>
__global__ void norm_kernel(const NormArgs<T, W, O> a) {
  __shared__ float scratch[32];
  let_next_start();
  wait_for_previous();
  const int64_t per_block = blockDim.x / G::kSize;
  const int64_t at = blockIdx.x * per_block + (G::kSize == 32 ? threadIdx.x / 32 : 0);
  if (at >= a.rows * a.inner) return;
  const int64_t t = at / a.inner, h = at % a.inner;
  const T* x = add_residual<G>(a.x + t * a.x_row + h * a.x_inner,
                               a.residual == nullptr ? nullptr : a.residual + t * a.r_row, a.n);
  O* out = a.out + t * a.out_row + h * a.out_inner;
  rms_row<G>(a, x, out, scratch);
}

// Eight values at a time, kPer times per thread; a block has just the threads that the row needs. kMore: parts besides
// the first. Up to 512 threads have 40 registers at most, beside which a block of gemm_large_tile.cuh finds room
// (kLean).
template <int kPer, int kMore, class T, class W, class O>
__global__ void __launch_bounds__(kPer == 1 ? 512 : 1024) norm_vector_kernel(const NormArgs<T, W, O> a) {
  __shared__ float scratch[32];
  const int64_t t = blockIdx.x, count = a.n / 8;
  Vec8 v[kPer] = {}, weight[kPer];
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int64_t i = threadIdx.x + int64_t{p} * blockDim.x;
    if (i < count) weight[p] = load8(a.weight + 8 * i);
  }
  // Of these rows the next kernel's blocks would crowd together on what is free; of more its blocks are such as have a
  // multiprocessor each.
  if (gridDim.x <= 32 || gridDim.x > 64) let_next_start();
  wait_for_previous();
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int64_t i = threadIdx.x + int64_t{p} * blockDim.x;
    if (i >= count) continue;
    const T* const from = a.x + t * a.x_row + 8 * i;
    v[p] = load8(from);
    Vec8 other[kMore + 1];
#pragma unroll
    for (int m = 0; m < kMore; ++m) other[m] = load8(from + (m + 1) * a.more);
#pragma unroll
    for (int m = 0; m < kMore; ++m) {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[p].v[j] += other[m].v[j];
    }
    if (a.residual != nullptr) {
      T* residual = a.residual + t * a.r_row + 8 * i;
      const Vec8 r = load8(residual);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[p].v[j] = rounded<T>(v[p].v[j] + r.v[j]);
      store8(residual, v[p]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[p].v[j] * v[p].v[j];
  }
  const float r = 1.0f / sqrtf(block_sum(sum, scratch) / static_cast<float>(a.n) + a.eps);
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int64_t i = threadIdx.x + int64_t{p} * blockDim.x;
    if (i >= count) continue;
    Vec8 y;
#pragma unroll
    for (int j = 0; j < 8; ++j) y.v[j] = rounded<T>(v[p].v[j] * r) * weight[p].v[j];
    store8(a.out + t * a.out_row + 8 * i, y);
  }
}

template <int kMore, class T, class W, class O>
Status launch_vector(const NormArgs<T, W, O>& a, device::Stream stream) {
  const bool twice = a.n > 4096;
  const auto threads = static_cast<unsigned>(blocks_for(a.n / 8, twice ? 64 : 32) * 32);
  const auto kernel = twice ? norm_vector_kernel<2, kMore, T, W, O> : norm_vector_kernel<1, kMore, T, W, O>;
  return launch(stream, kMore > 0 ? "rms_norm_parts" : "rms_norm_vector", {static_cast<unsigned>(a.rows), threads},
                kernel, a);
}

// Of a sum of so many parts.
template <class W, class O>
Status run_parts(const NormArgs<float, W, O>& a, int parts, device::Stream stream) {
  if (parts == 2) return launch_vector<1>(a, stream);
  return parts == 4 ? launch_vector<3>(a, stream) : launch_vector<7>(a, stream);
}

template <class T, class W, class O>
Status run_norm(const NormArgs<T, W, O>& a, bool vector, device::Stream stream) {
  const int64_t rows = a.rows * a.inner;
  if (rows == 0) return {};
  const auto grid = static_cast<unsigned>(rows);
  if (a.n <= kWarpRow) {
    const dim3 blocks(static_cast<unsigned>(blocks_for(rows, 4)));
    return launch(stream, "rms_norm_warp", {blocks, 128}, norm_kernel<WarpGroup, T, W, O>, a);
  }
  if (!vector || a.n > 16384)
    return launch(stream, "rms_norm_block", {grid, kThreads}, norm_kernel<BlockGroup, T, W, O>, a);
  return launch_vector<0>(a, stream);
}

bool aligned(const TensorView& v) { return reinterpret_cast<uintptr_t>(v.data) % 16 == 0; }

Status dispatch_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, const TensorView& out,
                     float eps, device::Stream stream, int parts = 1) {
  const bool deep = x.rank == 3;
  const int64_t length = x.dim[x.rank - 1];
  const bool vector = !deep && can_vector(x, length) && can_vector(out, length) && aligned(weight) &&
                      (residual.data == nullptr || can_vector(residual, length));
  return with_type(x.dtype, [&]<class T>() {
    return with_type(weight.dtype, [&]<class W>() {
      return with_type(out.dtype, [&]<class O>() {
        const NormArgs<T, W, O> a{x.as<const T>(),
                                  residual.as<T>(),
                                  weight.as<const W>(),
                                  out.as<O>(),
                                  x.dim[0],
                                  deep ? x.dim[1] : 1,
                                  x.dim[x.rank - 1],
                                  x.stride[0],
                                  deep ? x.stride[1] : 0,
                                  residual.stride[0],
                                  out.stride[0],
                                  deep ? out.stride[1] : 0,
                                  eps,
                                  x.dim[0] * length};
        if constexpr (std::is_same_v<T, float>) {
          if (parts > 1) return run_parts(a, parts, stream);
        }
        return run_norm(a, vector, stream);
      });
    });
  });
}

}  // namespace

Status rms_norm(const ops::RmsNormParams& p, device::Stream stream) {
  constexpr const char* kOp = "rms_norm";
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && ops::is_rows(p.x), "x must be [T, H] or [T, heads, D]");
  const TensorView &x = p.x, &out = p.out;
  const int64_t n = x.dim[x.rank - 1];
  TERN_OP_CHECK(kOp,
                ops::is_act(out.dtype) && ops::is_rows(out) && out.rank == x.rank && out.dim[0] == x.dim[0] &&
                    out.dim[1] == x.dim[1] && out.dim[2] == x.dim[2],
                "out must be shaped like x");
  TERN_OP_CHECK(kOp, ops::is_act(p.weight.dtype) && ops::is_vector(p.weight, p.weight.dtype, n), "weight must be [H]");
  TERN_OP_CHECK(kOp,
                p.residual.data == nullptr ||
                    (x.rank == 2 && p.residual.dtype == x.dtype && ops::is_matrix(p.residual, x.dim[0], n)),
                "residual must be like x");
  if (chain_fits(p, stream)) return append_to_chain(p, stream);
  if (defer(p, stream)) return {};
  return dispatch_norm(x, p.residual, p.weight, out, p.eps, stream);
}

Status rms_norm_parts(const ops::RmsNormParams& p, const float* x, int parts, device::Stream stream) {
  TensorView first = p.x;
  first.data = const_cast<float*>(x), first.stride[0] = p.x.dim[1];
  return dispatch_norm(first, p.residual, p.weight, p.out, p.eps, stream, parts);
}

}  // namespace tern::cuda
