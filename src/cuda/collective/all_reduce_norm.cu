// A sum over ranks with the residual and the norm behind it in one kernel: a block per row, whose values never leave
// their registers between the other ranks' words and the normed row.
#include <algorithm>

#include "cuda/collective/all_reduce.h"
#include "cuda/collective/peer.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

template <class W, class O>
struct ReduceNorm {
  const float* x;
  float* residual;
  const W* weight;
  O* out;
  int64_t rows, n;
  int64_t x_row, r_row, out_row;  // strides in elements
  float eps;
};

// Threads, and which values a thread has, as in rms_norm_vector: the same bits.
template <int kPer, int kMost, class W, class O>
__global__ void __launch_bounds__(kPer == 1 ? 512 : 1024)
    reduce_norm_kernel(const __grid_constant__ Peers p, const ReduceNorm<W, O> a) {
  __shared__ float scratch[32];
  const int count8 = static_cast<int>(a.n / 8);
  Vec8 v[kPer] = {}, weight[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int i = static_cast<int>(threadIdx.x + j * blockDim.x);
    if (i < count8) weight[j] = load8(a.weight + 8 * i);
  }
  let_next_start();
  wait_for_previous();
  uint32_t count = next_count(p);
  for (int64_t t = blockIdx.x; t < a.rows; t += gridDim.x, ++count) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int i = static_cast<int>(threadIdx.x + j * blockDim.x);
      if (i >= count8) continue;
      v[j] = load8(a.x + t * a.x_row + 8 * i);
      send_four(p, count, 8 * i, make_float4(v[j].v[0], v[j].v[1], v[j].v[2], v[j].v[3]));
      send_four(p, count, 8 * i + 4, make_float4(v[j].v[4], v[j].v[5], v[j].v[6], v[j].v[7]));
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int i = static_cast<int>(threadIdx.x + j * blockDim.x);
      if (i >= count8) continue;
      float* const residual = a.residual + t * a.r_row + 8 * i;
      const Vec8 r = load8(residual);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* const f = v[j].v + 4 * h;
        const float4 s = sum_four<kMost>(p, count, 8 * i + 4 * h, make_float4(f[0], f[1], f[2], f[3]));
        f[0] = s.x + r.v[4 * h], f[1] = s.y + r.v[4 * h + 1];
        f[2] = s.z + r.v[4 * h + 2], f[3] = s.w + r.v[4 * h + 3];
      }
      store8(residual, v[j]);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += v[j].v[e] * v[j].v[e];
    }
    // All threads have what the others sent for this row when one of them sends of the next.
    const float r = 1.0f / sqrtf(block_sum(sum, scratch) / static_cast<float>(a.n) + a.eps);
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int i = static_cast<int>(threadIdx.x + j * blockDim.x);
      if (i >= count8) continue;
      Vec8 y;
#pragma unroll
      for (int e = 0; e < 8; ++e) y.v[e] = v[j].v[e] * r * weight[j].v[e];
      store8(a.out + t * a.out_row + 8 * i, y);
    }
  }
  finish(p, count - 1);
}

template <int kMost, class W, class O>
Status run(const Peers& p, const ReduceNorm<W, O>& a, device::Stream stream) {
  const bool twice = a.n > 4096;
  const auto threads = static_cast<unsigned>(blocks_for(a.n / 8, twice ? 64 : 32) * 32);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(a.rows, kPeerBlocks));
  const auto kernel = twice ? reduce_norm_kernel<2, kMost, W, O> : reduce_norm_kernel<1, kMost, W, O>;
  return launch(stream, "all_reduce_norm", {blocks, threads}, kernel, p, a);
}

bool fits(const Peers& p, const ops::RmsNormParams& n) {
  // Of more, a block per row sends less at a time than all blocks of a sum of its own. Shorter rows are a warp's in
  // rms_norm(), whose sums of squares have other bits.
  constexpr int64_t kMost = int64_t{128} << 10, kShort = 512;
  const int64_t width = n.x.dim[1];
  return staged(p, n.x.numel()) && n.x.numel() * 4 * (p.ranks - 1) <= kMost && width > kShort &&
         width <= kStageFloats && n.residual.data != nullptr && can_vector(n.x, width) &&
         can_vector(n.residual, width) && can_vector(n.out, width) &&
         reinterpret_cast<uintptr_t>(n.weight.data) % 16 == 0;
}

}  // namespace

Status all_reduce_norm(const ops::AllReduceNormParams& params, device::Stream stream) {
  constexpr const char* kOp = "all_reduce_norm";
  const ops::RmsNormParams& n = params.norm;
  const int64_t rows = n.x.dim[0], width = n.x.dim[1];
  TERN_OP_CHECK(kOp, n.x.data == params.reduce.x.data && n.x.rank == 2, "the norm must read what is added up");
  const Peers* p = peers_of(params.reduce.communicator);
  if (rows == 0 || p == nullptr || n.x.dtype != DType::kF32 || !fits(*p, n)) {
    TERN_RETURN_IF_ERROR(cuda::all_reduce(params.reduce, stream));
    return cuda::rms_norm(n, stream);
  }
  TERN_OP_CHECK(kOp, n.residual.dtype == DType::kF32 && ops::is_matrix(n.residual, rows, width),
                "residual must be like x");
  TERN_OP_CHECK(kOp, ops::is_act(n.out.dtype) && ops::is_matrix(n.out, rows, width), "out must be shaped like x");
  TERN_OP_CHECK(kOp, ops::is_act(n.weight.dtype) && ops::is_vector(n.weight, n.weight.dtype, width),
                "weight must be [H]");
  return with_type(n.weight.dtype, [&]<class W>() {
    return with_type(n.out.dtype, [&]<class O>() {
      const ReduceNorm<W, O> a{
          n.x.as<const float>(), n.residual.as<float>(), n.weight.as<const W>(), n.out.as<O>(), rows, width,
          n.x.stride[0],         n.residual.stride[0],   n.out.stride[0],        n.eps};
      if (p->ranks <= 2) return run<2>(*p, a, stream);
      return p->ranks <= 4 ? run<4>(*p, a, stream) : run<8>(*p, a, stream);
    });
  });
}

}  // namespace tern::cuda
