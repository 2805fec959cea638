// Gated and plain activations.
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 256;

// x / (1 + e^-y). kShort: for results that are rounded to bfloat16, some units in the last place of a float away.
template <bool kShort>
__device__ __forceinline__ float gated(float x, float y) {
  if constexpr (kShort) return __fdividef(x, 1.0f + __expf(-y));
  return x / (1.0f + expf(-y));
}

// Rows [range[0], range[last]) or all of them; the grid covers all rows, because the range is known to the device only.
template <class T, class O>
__global__ void silu_mul_kernel(Rows<const T> gate_up, Rows<O> out, int64_t n, const int32_t* range, int last,
                                bool vector) {
  constexpr bool kShort = sizeof(T) == 2;
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  if (range != nullptr && (t < range[0] || t >= range[last])) return;
  const T *gate = gate_up.row(t), *up = gate + n;
  O* to = out.row(t);
  const int64_t first = blockIdx.y * blockDim.x + threadIdx.x, step = int64_t{gridDim.y} * blockDim.x;
  if (vector) {
    for (int64_t i = first; i < n / 8; i += step) {
      const Vec8 g = load8(gate + 8 * i), u = load8(up + 8 * i);
      Vec8 y;
#pragma unroll
      for (int j = 0; j < 8; ++j) y.v[j] = rounded<T>(gated<kShort>(g.v[j], g.v[j])) * u.v[j];
      store8(to + 8 * i, y);
    }
    return;
  }
  for (int64_t i = first; i < n; i += step) {
    const float g = as_float(gate[i]);
    to[i] = from_float<O>(rounded<T>(gated<kShort>(g, g)) * as_float(up[i]));
  }
}

template <bool kShort>
__device__ __forceinline__ float activated(float x, ops::Activation kind) {
  switch (kind) {
    case ops::Activation::kGeluErf:
      return 0.5f * x * erfcf(x * -0.70710678118654752f);
    case ops::Activation::kGeluTanh:
      return gated<kShort>(x, 1.5957691216057308f * (x + 0.044715f * x * x * x));
    case ops::Activation::kQuickGelu:
      return gated<kShort>(x, 1.702f * x);
    case ops::Activation::kRelu:
      return x < 0.0f ? 0.0f : x;
    case ops::Activation::kNone:
      return x;
    default:
      return silu(x);
  }
}

template <class T, class O>
__global__ void activate_kernel(Rows<const T> x, Rows<O> out, int64_t n, ops::Activation kind, bool vector) {
  constexpr bool kShort = sizeof(O) == 2;
  let_next_start();
  wait_for_previous();
  const T* from = x.row(blockIdx.x);
  O* to = out.row(blockIdx.x);
  const int64_t first = blockIdx.y * blockDim.x + threadIdx.x, step = int64_t{gridDim.y} * blockDim.x;
  if (vector) {
    for (int64_t i = first; i < n / 8; i += step) {
      Vec8 v = load8(from + 8 * i);
#pragma unroll
      for (int j = 0; j < 8; ++j) v.v[j] = activated<kShort>(v.v[j], kind);
      store8(to + 8 * i, v);
    }
    return;
  }
  for (int64_t i = first; i < n; i += step) to[i] = from_float<O>(activated<kShort>(as_float(from[i]), kind));
}

}  // namespace

Status silu_mul(const ops::SiluMulParams& p, device::Stream stream) {
  constexpr const char* kOp = "silu_mul";
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && p.out.rank == 2 && ops::is_rows(p.out), "out must be [T, I]");
  const int64_t n = p.out.dim[1], rows = p.out.dim[0];
  TERN_OP_CHECK(kOp, ops::is_act(p.gate_up.dtype) && ops::is_matrix(p.gate_up, rows, 2 * n),
                "gate_up must be [T, 2 * I]");
  TERN_OP_CHECK(
      kOp, p.range.data == nullptr || (p.range.dim[0] >= 1 && ops::is_vector(p.range, DType::kI32, p.range.dim[0])),
      "range must be [n] int32");
  if (rows == 0) return {};
  const bool vector = can_vector(p.gate_up, n) && can_vector(p.out, n);
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(blocks_for(vector ? n / 8 : n, kThreads)));
  const int last = p.range.data == nullptr ? 0 : static_cast<int>(p.range.dim[0] - 1);
  return with_type(p.gate_up.dtype, [&]<class T>() {
    return with_type(p.out.dtype, [&]<class O>() {
      return launch(stream, vector ? "silu_mul_vector" : "silu_mul_scalar", {grid, kThreads}, silu_mul_kernel<T, O>,
                    rows_of<const T>(p.gate_up), rows_of<O>(p.out), n, p.range.as<const int32_t>(), last, vector);
    });
  });
}

Status activate(const ops::ActivateParams& p, device::Stream stream) {
  constexpr const char* kOp = "activate";
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && p.x.rank == 2 && ops::is_rows(p.x), "x must be [T, N]");
  const int64_t rows = p.x.dim[0], n = p.x.dim[1];
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && ops::is_matrix(p.out, rows, n), "out must be [T, N]");
  if (rows == 0) return {};
  const bool vector = can_vector(p.x, n) && can_vector(p.out, n);
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(blocks_for(vector ? n / 8 : n, 2 * kThreads)));
  return with_type(p.x.dtype, [&]<class T>() {
    return with_type(p.out.dtype, [&]<class O>() {
      return launch(stream, vector ? "activate_vector" : "activate_scalar", {grid, kThreads}, activate_kernel<T, O>,
                    rows_of<const T>(p.x), rows_of<O>(p.out), n, p.kind, vector);
    });
  });
}

}  // namespace tern::cuda
