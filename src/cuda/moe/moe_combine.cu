// Mixture of experts: add the results up again, and what stands behind that in a model.
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kCombineThreads = 128;

// Neighbours of a row, moved in one piece.
template <class T, int kEach>
struct alignas(kEach * sizeof(T)) Few {
  T v[kEach];
  bool there;
  __device__ __forceinline__ void load(const T* from) { copy(v, from); }
  __device__ __forceinline__ void store(T* to) const { copy(to, v); }
  __device__ __forceinline__ float value(int i) const { return as_float(v[i]); }

 private:
  static __device__ __forceinline__ void copy(T* to, const T* from) {
    if constexpr (kEach == 1) {
      *to = *from;
    } else if constexpr (sizeof(T) == 4) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(from);
    }
  }
};

// Y: of the experts' results, T: of their sum.
template <class Y, class T>
struct CombineArgs {
  Rows<const Y> y;
  int64_t y_rows;
  Rows<const int32_t> row_of;
  Rows<const float> weights;
  Rows<const T> shared;  // null: none
  const float* gate;     // null: 1
  Rows<T> out;
  int top_k;
  int64_t n;
};

constexpr int kTogether = 8;  // experts whose rows are on their way together

// kEach neighbours per thread: 4 where rows are aligned.
template <class Y, class T, int kEach>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(const CombineArgs<Y, T> a) {
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x, i = kEach * (int64_t{blockIdx.y} * blockDim.x + threadIdx.x);
  if (i >= a.n) return;
  const int32_t* rows = a.row_of.row(t);
  const float* weights = a.weights.row(t);
  float sum[kEach] = {};
  for (int j0 = 0; j0 < a.top_k; j0 += kTogether) {
    Few<Y, kEach> y[kTogether];
    float weight[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int32_t r = j0 + j < a.top_k ? rows[j0 + j] : -1;
      weight[j] = j0 + j < a.top_k ? weights[j0 + j] : 0.0f;
      y[j].there = r >= 0 && r < a.y_rows;
      if (y[j].there) y[j].load(a.y.row(r) + i);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (!y[j].there) continue;
#pragma unroll
      for (int k = 0; k < kEach; ++k) sum[k] += weight[j] * y[j].value(k);
    }
  }
  if (a.shared.data != nullptr) {
    const float scale = a.gate == nullptr ? 1.0f : 1.0f / (1.0f + expf(-a.gate[t]));
    Few<T, kEach> y;
    y.load(a.shared.row(t) + i);
#pragma unroll
    for (int k = 0; k < kEach; ++k) sum[k] += scale * y.value(k);
  }
  Few<T, kEach> out;
#pragma unroll
  for (int k = 0; k < kEach; ++k) out.v[k] = from_float<T>(sum[k]);
  out.store(a.out.row(t) + i);
}

template <class W>
struct NormBehind {
  Rows<float> residual;
  const W* weight;
  Rows<bf> out;
  float eps;
  bool early;  // all but y was there before the kernel before this one began to write
};

// Where results of kTogether experts lie, from rank j0 on, and what they count.
template <int kTogether>
struct Picks {
  int32_t row[kTogether];
  float weight[kTogether];
  template <class Y>
  __device__ __forceinline__ void load(const CombineArgs<Y, float>& a, int64_t t, int j0) {
    const int32_t* rows = a.row_of.row(t);
    const float* weights = a.weights.row(t);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      row[j] = j0 + j < a.top_k ? rows[j0 + j] : -1;
      weight[j] = j0 + j < a.top_k ? weights[j0 + j] : 0.0f;
      if (row[j] >= a.y_rows) row[j] = -1;
    }
  }
};

// Eight values as they lie in memory, so that those on their way take no more registers than that.
template <class T>
struct Eight {
  uint4 raw[sizeof(T) / 2];
  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (size_t i = 0; i < sizeof(T) / 2; ++i) raw[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  __device__ __forceinline__ Vec8 values() const { return load8(reinterpret_cast<const T*>(raw)); }
};

// The sum of a token's eight values from `i` on, kTogether experts on their way together; `picks`: the first of them.
template <class Y, int kTogether>
__device__ __forceinline__ Vec8 combine_eight(const CombineArgs<Y, float>& a, Picks<kTogether> picks, int64_t t,
                                              int64_t i) {
  Vec8 sum{};
  for (int j0 = 0; j0 < a.top_k; j0 += kTogether) {
    if (j0 > 0) picks.load(a, t, j0);
    Eight<Y> y[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (picks.row[j] >= 0) y[j].load(a.y.row(picks.row[j]) + i);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (picks.row[j] < 0) continue;
      const Vec8 v = y[j].values();
#pragma unroll
      for (int k = 0; k < 8; ++k) sum.v[k] += picks.weight[j] * v.v[k];
    }
  }
  if (a.shared.data != nullptr) {
    const float scale = a.gate == nullptr ? 1.0f : 1.0f / (1.0f + expf(-a.gate[t]));
    const Vec8 y = load8(a.shared.row(t) + i);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum.v[k] += scale * y.v[k];
  }
  return sum;
}

// Eight values per thread; the arithmetic of combine_kernel. early: all but y was there before the kernel before this
// one began to write.
template <class Y>
__global__ void __launch_bounds__(kCombineThreads, sizeof(Y) == 2 ? 5 : 4)
    combine_eight_kernel(const CombineArgs<Y, float> a, bool early) {
  const int64_t t = blockIdx.x, i = 8 * (int64_t{blockIdx.y} * blockDim.x + threadIdx.x);
  let_next_start();
  bring_parameters(a);
  if (!early) wait_for_previous();
  Picks<8> picks;
  picks.load(a, t, 0);
  if (early) wait_for_previous();
  if (i < a.n) store8(a.out.row(t) + i, combine_eight<Y, 8>(a, picks, t, i));
}

// A block per token, eight values per thread; the arithmetic of combine_kernel and of the norm's vector kernel.
template <class Y, class W, int kTogether>
__global__ void __launch_bounds__(kTogether == 8 ? 512 : 1024)
    combine_norm_kernel(const CombineArgs<Y, float> a, const NormBehind<W> norm) {
  __shared__ float scratch[32];
  const int64_t t = blockIdx.x, i = 8 * int64_t{threadIdx.x};
  const bool here = i < a.n;
  Vec8 weight{}, v{}, r{};
  Picks<kTogether> picks;
  if (here) weight = load8(norm.weight + i);
  bring_parameters(a, norm);
  if (gridDim.x <= 32) let_next_start();  // else its blocks would crowd together on what is free
  if (!norm.early) wait_for_previous();
  picks.load(a, t, 0);
  if (here) r = load8(norm.residual.row(t) + i);
  if (norm.early) wait_for_previous();
  float square = 0.0f;
  if (here) {
    v = combine_eight<Y, kTogether>(a, picks, t, i);
#pragma unroll
    for (int k = 0; k < 8; ++k) v.v[k] += r.v[k];
    store8(norm.residual.row(t) + i, v);
#pragma unroll
    for (int k = 0; k < 8; ++k) square += v.v[k] * v.v[k];
  }
  const float scale = 1.0f / sqrtf(block_sum(square, scratch) / static_cast<float>(a.n) + norm.eps);
  if (!here) return;
#pragma unroll
  for (int k = 0; k < 8; ++k) v.v[k] = v.v[k] * scale * weight.v[k];
  store8(norm.out.row(t) + i, v);
}

template <class Y, class T>
CombineArgs<Y, T> combine_args(const ops::MoeCombineParams& p) {
  return {rows_of<const Y>(p.y),
          p.y.dim[0],
          rows_of<const int32_t>(p.row_of),
          rows_of<const float>(p.weights),
          rows_of<const T>(p.shared),
          p.shared_gate.as<const float>(),
          rows_of<T>(p.out),
          static_cast<int>(p.row_of.dim[1]),
          p.out.dim[1]};
}

bool combine_vector(const ops::MoeCombineParams& p) {
  const int64_t h = p.out.dim[1];
  return can_vector(p.out, h) && can_vector(p.y, h) && (p.shared.data == nullptr || can_vector(p.shared, h));
}

Status check_combine(const ops::MoeCombineParams& p) {
  constexpr const char* kOp = "moe_combine";
  const int64_t n = p.out.dim[0], h = p.out.dim[1], top_k = p.row_of.dim[1];
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && p.out.rank == 2 && ops::is_rows(p.out), "out must be [T, H]");
  TERN_OP_CHECK(kOp, p.row_of.dtype == DType::kI32 && ops::is_matrix(p.row_of, n, top_k),
                "row_of must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.weights.dtype == DType::kF32 && ops::is_matrix(p.weights, n, top_k),
                "weights must be [T, top_k]");
  TERN_OP_CHECK(kOp, (p.y.dtype == p.out.dtype || p.y.dtype == DType::kBF16) && ops::is_matrix(p.y, p.y.dim[0], h),
                "y must be [T * top_k, H]");
  TERN_OP_CHECK(kOp, p.shared.data == nullptr || (p.shared.dtype == p.out.dtype && ops::is_matrix(p.shared, n, h)),
                "shared must be [T, H]");
  TERN_OP_CHECK(kOp, p.shared_gate.data == nullptr || ops::is_vector(p.shared_gate, DType::kF32, n),
                "shared_gate must be [T] float32");
  return {};
}

}  // namespace

Status moe_combine(const ops::MoeCombineParams& p, device::Stream stream) {
  TERN_RETURN_IF_ERROR(check_combine(p));
  const int64_t n = p.out.dim[0], h = p.out.dim[1];
  if (n == 0) return {};
  TERN_RETURN_IF_ERROR(launch_deferred(stream));  // what is settled follows from the last launch
  const bool vector = combine_vector(p);
  const auto grid_of = [&](int each) {
    return dim3(static_cast<unsigned>(n), static_cast<unsigned>(blocks_for(h, each * kCombineThreads)));
  };
  if (vector && p.out.dtype == DType::kF32) {
    return with_type(p.y.dtype, [&]<class Y>() {
      return launch(stream, "moe_combine_vector", {grid_of(8), kCombineThreads}, combine_eight_kernel<Y>,
                    combine_args<Y, float>(p), state(stream).settled != nullptr);
    });
  }
  const auto run = [&]<class Y, class T>() {
    return launch(stream, vector ? "moe_combine_vector" : "moe_combine", {grid_of(vector ? 4 : 1), kCombineThreads},
                  vector ? combine_kernel<Y, T, 4> : combine_kernel<Y, T, 1>, combine_args<Y, T>(p));
  };
  if (p.out.dtype == DType::kBF16) return run.template operator()<bf, bf>();
  return with_type(p.y.dtype, [&]<class Y>() { return run.template operator()<Y, float>(); });
}

Status moe_combine_norm(const ops::MoeCombineNormParams& p, device::Stream stream) {
  const ops::MoeCombineParams& c = p.combine;
  const ops::RmsNormParams& q = p.norm;
  const int64_t n = c.out.dim[0], h = c.out.dim[1];
  const bool together = n > 0 && c.out.dtype == DType::kF32 && q.x.data == c.out.data && h <= 8192 &&
                        combine_vector(c) && q.residual.dtype == DType::kF32 && q.out.dtype == DType::kBF16 &&
                        ops::is_act(q.weight.dtype) && ops::is_vector(q.weight, q.weight.dtype, h) &&
                        ops::is_matrix(q.residual, n, h) && ops::is_matrix(q.out, n, h) && can_vector(q.residual, h) &&
                        can_vector(q.out, h) && reinterpret_cast<uintptr_t>(q.weight.data) % 16 == 0;
  if (!together) {
    TERN_RETURN_IF_ERROR(cuda::moe_combine(c, stream));
    return cuda::rms_norm(q, stream);
  }
  TERN_RETURN_IF_ERROR(check_combine(c));
  if (defer(p, stream)) return {};
  TERN_RETURN_IF_ERROR(launch_deferred(stream));  // what is settled follows from the last launch
  const auto threads = static_cast<unsigned>(blocks_for(h / 8, 32) * 32);
  const auto run = [&]<class Y, class W>() {
    const NormBehind<W> norm{rows_of<float>(q.residual), q.weight.as<const W>(), rows_of<bf>(q.out), q.eps,
                             state(stream).settled != nullptr};
    return launch(stream, "moe_combine_norm", {static_cast<unsigned>(n), threads},
                  threads <= 512 ? combine_norm_kernel<Y, W, 8> : combine_norm_kernel<Y, W, 4>,
                  combine_args<Y, float>(c), norm);
  };
  return with_type(q.weight.dtype, [&]<class W>() {
    return with_type(c.y.dtype, [&]<class Y>() { return run.template operator()<Y, W>(); });
  });
}

}  // namespace tern::cuda
