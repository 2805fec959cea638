// Layer norm: a warp per row, whose values stay in its registers when rows are aligned and not too long.
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kWarps = 4;            // rows of a block
constexpr int kChunk = 128;          // values of a row that a warp takes at once, four a lane
constexpr int64_t kMostChunks = 16;  // more values than these are read again from memory

template <class T, class R, class W, class O>
struct LayerArgs {
  const T* x;
  R* residual;  // or null
  const W *weight, *bias;
  O* out;
  int64_t rows, n;
  int64_t x_row, r_row, out_row;  // elements
  float eps;
};

struct Vec4 {
  float v[4];
};
__device__ __forceinline__ Vec4 load4(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p);
  return {{a.x, a.y, a.z, a.w}};
}
__device__ __forceinline__ Vec4 load4(const bf* p) {
  const uint2 u = *reinterpret_cast<const uint2*>(p);
  return {{__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xffff0000u), __uint_as_float(u.y << 16),
           __uint_as_float(u.y & 0xffff0000u)}};
}
__device__ __forceinline__ void store4(float* p, const Vec4& x) {
  *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
}
__device__ __forceinline__ void store4(bf* p, const Vec4& x) {
  *reinterpret_cast<uint2*>(p) = make_uint2(pack2(x.v[0], x.v[1]), pack2(x.v[2], x.v[3]));
}

// Up to kChunks chunks, the last one perhaps not whole.
template <int kChunks, class T, class R, class W, class O>
__global__ void __launch_bounds__(32 * kWarps) layer_kept_kernel(const LayerArgs<T, R, W, O> a) {
  let_next_start();
  wait_for_previous();
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (t >= a.rows) return;
  const int first = static_cast<int>(threadIdx.x & 31) * 4, n = static_cast<int>(a.n);
  const T* x = a.x + t * a.x_row + first;
  R* residual = a.residual + t * a.r_row + first;
  Vec4 v[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) v[c] = first + c * kChunk < n ? load4(x + c * kChunk) : Vec4{};
  if (a.residual != nullptr) {
    Vec4 r[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) r[c] = first + c * kChunk < n ? load4(residual + c * kChunk) : Vec4{};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[c].v[j] = rounded<R>(v[c].v[j] + r[c].v[j]);
      if (first + c * kChunk < n) store4(residual + c * kChunk, v[c]);
    }
  }
  float sum = 0.0f, square = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) sum += (v[c].v[0] + v[c].v[1]) + (v[c].v[2] + v[c].v[3]);
  const float mean = warp_sum(sum) / static_cast<float>(n);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (first + c * kChunk >= n) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) square += (v[c].v[j] - mean) * (v[c].v[j] - mean);
  }
  const float scale = 1.0f / sqrtf(warp_sum(square) / static_cast<float>(n) + a.eps);
  O* out = a.out + t * a.out_row + first;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (first + c * kChunk >= n) continue;
    const Vec4 weight = load4(a.weight + first + c * kChunk), bias = load4(a.bias + first + c * kChunk);
    Vec4 y;
#pragma unroll
    for (int j = 0; j < 4; ++j) y.v[j] = (v[c].v[j] - mean) * scale * weight.v[j] + bias.v[j];
    store4(out + c * kChunk, y);
  }
}

// Any row: values one by one, three times.
template <class T, class R, class W, class O>
__global__ void __launch_bounds__(32 * kWarps) layer_any_kernel(const LayerArgs<T, R, W, O> a) {
  let_next_start();
  wait_for_previous();
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (t >= a.rows) return;
  const int lane = threadIdx.x & 31;
  const T* x = a.x + t * a.x_row;
  R* residual = a.residual + t * a.r_row;
  const auto value = [&](int64_t i) { return a.residual != nullptr ? as_float(residual[i]) : as_float(x[i]); };
  float sum = 0.0f, square = 0.0f;
  for (int64_t i = lane; i < a.n; i += 32) {
    // A thread reads back only what it wrote.
    if (a.residual != nullptr) residual[i] = from_float<R>(as_float(residual[i]) + as_float(x[i]));
    sum += value(i);
  }
  const auto n = static_cast<float>(a.n);
  const float mean = warp_sum(sum) / n;
  for (int64_t i = lane; i < a.n; i += 32) square += (value(i) - mean) * (value(i) - mean);
  const float scale = 1.0f / sqrtf(warp_sum(square) / n + a.eps);
  O* out = a.out + t * a.out_row;
  for (int64_t i = lane; i < a.n; i += 32) {
    out[i] = from_float<O>((value(i) - mean) * scale * as_float(a.weight[i]) + as_float(a.bias[i]));
  }
}

// Rows of n values, four at a time.
bool fours(const TensorView& v, int64_t n) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(v.dtype)) * 4;
  return v.data == nullptr || (n % 4 == 0 && reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(bytes) == 0 &&
                               (v.rank < 2 || v.stride[0] % 4 == 0));
}

template <class T, class R, class W, class O>
Status run(const ops::LayerNormParams& p, device::Stream stream) {
  const int64_t n = p.x.dim[1];
  const LayerArgs<T, R, W, O> a{p.x.as<const T>(),
                                p.residual.as<R>(),
                                p.weight.as<const W>(),
                                p.bias.as<const W>(),
                                p.out.as<O>(),
                                p.x.dim[0],
                                n,
                                p.x.stride[0],
                                p.residual.stride[0],
                                p.out.stride[0],
                                p.eps};
  const Shape shape{static_cast<unsigned>(blocks_for(a.rows, kWarps)), 32 * kWarps};
  bool kept = n <= kMostChunks * kChunk;
  for (const TensorView* v : {&p.x, &p.residual, &p.weight, &p.bias, &p.out}) kept = kept && fours(*v, n);
  if (!kept) return launch(stream, "layer_norm_any", shape, layer_any_kernel<T, R, W, O>, a);
  const auto kernel = n <= 10 * kChunk ? layer_kept_kernel<10, T, R, W, O> : layer_kept_kernel<kMostChunks, T, R, W, O>;
  return launch(stream, "layer_norm_kept", shape, kernel, a);
}

}  // namespace

Status layer_norm(const ops::LayerNormParams& p, device::Stream stream) {
  constexpr const char* kOp = "layer_norm";
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && p.x.rank == 2 && ops::is_rows(p.x), "x must be [T, H]");
  const int64_t rows = p.x.dim[0], n = p.x.dim[1];
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && ops::is_matrix(p.out, rows, n), "out must be shaped like x");
  TERN_OP_CHECK(kOp,
                ops::is_act(p.weight.dtype) && ops::is_vector(p.weight, p.weight.dtype, n) &&
                    ops::is_vector(p.bias, p.weight.dtype, n),
                "weight and bias must be [H] of one type");
  TERN_OP_CHECK(kOp,
                p.residual.data == nullptr || ((p.residual.dtype == p.x.dtype || p.residual.dtype == DType::kF32) &&
                                               ops::is_matrix(p.residual, rows, n)),
                "residual must be like x, or float32");
  if (rows == 0) return {};
  const bool widens = p.residual.data != nullptr && p.residual.dtype == DType::kF32;
  return with_type(p.x.dtype, [&]<class T>() {
    return with_type(p.weight.dtype, [&]<class W>() {
      return with_type(p.out.dtype,
                       [&]<class O>() { return widens ? run<T, float, W, O>(p, stream) : run<T, T, W, O>(p, stream); });
    });
  });
}

}  // namespace tern::cuda
