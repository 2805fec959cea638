// Sums over ranks, in the order of ranks, float32. Few values: every rank gives all of its own to all others, in words
// that say when they are there, and adds up for itself. Many: each adds up its part of them where the others have it,
// and writes the sum to all. Both give the same bits.
#include <algorithm>

#include "cuda/collective/all_reduce.h"
#include "cuda/collective/peer.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 256, kManyThreads = 512;

// Values [at, at + 4) of n, of which the last ones may be missing.
__device__ __forceinline__ float4 take_four(const float* x, int64_t at, int64_t n) {
  if (at + 4 <= n) return *reinterpret_cast<const float4*>(x + at);
  float4 v{};
  v.x = x[at];
  if (at + 1 < n) v.y = x[at + 1];
  if (at + 2 < n) v.z = x[at + 2];
  return v;
}
__device__ __forceinline__ void leave_four(float* x, int64_t at, int64_t n, const float4& v) {
  if (at + 4 <= n) {
    *reinterpret_cast<float4*>(x + at) = v;
    return;
  }
  x[at] = v.x;
  if (at + 1 < n) x[at + 1] = v.y;
  if (at + 2 < n) x[at + 2] = v.z;
}

// A block has `share` values, a multiple of four.
template <int kMost>
__global__ void __launch_bounds__(kThreads)
    reduce_staged_kernel(const __grid_constant__ Peers p, float* x, int64_t n, int share) {
  let_next_start();
  wait_for_previous();
  const uint32_t count = next_count(p);
  float* const mine = x + int64_t{blockIdx.x} * share;
  const int64_t left = n - int64_t{blockIdx.x} * share;
  const int most = static_cast<int>(left < share ? left : share);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < most; i += 4 * kThreads) {
    send_four(p, count, i, take_four(mine, i, most));
  }
  for (int i = 4 * static_cast<int>(threadIdx.x); i < most; i += 4 * kThreads) {
    leave_four(mine, i, most, sum_four<kMost>(p, count, i, take_four(mine, i, most)));
  }
  finish(p, count);
}

// Fours of values; this rank's part of them is [first, last).
template <int kMost>
__device__ __forceinline__ void reduce_part(const Peers& p, float* const* of, int64_t n, int64_t first, int64_t last) {
  constexpr int kAhead = 8 / kMost;  // sums under way in a thread: the others' memory is far
  const int64_t step = int64_t{gridDim.x} * kManyThreads;
  for (int64_t i = first + int64_t{blockIdx.x} * kManyThreads + threadIdx.x; i < last; i += kAhead * step) {
    float4 v[kAhead][kMost];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t at = 4 * (i + j * step);
#pragma unroll
      for (int r = 0; r < kMost; ++r) {
        if (i + j * step >= last || r >= p.ranks) continue;
        v[j][r] = at + 4 <= n ? see_four(of[r] + at) : take_four(of[r], at, n);
      }
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (i + j * step >= last) continue;
      float4 sum = v[j][0];
#pragma unroll
      for (int r = 1; r < kMost; ++r) {
        if (r < p.ranks) sum = add_four(sum, v[j][r]);
      }
#pragma unroll
      for (int r = 0; r < kMost; ++r) {
        if (r < p.ranks) leave_four(of[r], 4 * (i + j * step), n, sum);
      }
    }
  }
}

template <int kMost>
__global__ void __launch_bounds__(kManyThreads)
    reduce_parts_kernel(const __grid_constant__ Peers p, float* x, int64_t n) {
  __shared__ void* of[kMostRanks];
  let_next_start();
  wait_for_previous();
  const uint32_t count = next_count(p);
  begin(p, count, x, of);
  if (all_came(p, of)) {
    float* at[kMost];
#pragma unroll
    for (int r = 0; r < kMost; ++r) at[r] = r < p.ranks ? static_cast<float*>(of[r]) : nullptr;
    const int64_t fours = (n + 3) / 4;
    reduce_part<kMost>(p, at, n, fours * p.rank / p.ranks, fours * (p.rank + 1) / p.ranks);
  }
  end(p, count);
}

Status reduce(const Peers& p, float* x, int64_t n, device::Stream stream) {
  if (staged(p, n)) {
    // Few values for each block, as long as there are blocks.
    const int64_t share = std::max<int64_t>(4 * kThreads, blocks_for(blocks_for(n, kPeerBlocks), 4) * 4);
    const auto kernel = p.ranks <= 2   ? reduce_staged_kernel<2>
                        : p.ranks <= 4 ? reduce_staged_kernel<4>
                                       : reduce_staged_kernel<8>;
    return launch(stream, "all_reduce_staged", {static_cast<unsigned>(blocks_for(n, share)), kThreads}, kernel, p, x, n,
                  static_cast<int>(share));
  }
  const auto kernel = p.ranks <= 2   ? reduce_parts_kernel<2>
                      : p.ranks <= 4 ? reduce_parts_kernel<4>
                                     : reduce_parts_kernel<8>;
  const int64_t each = blocks_for(blocks_for(blocks_for(n, 4), p.ranks), kManyThreads);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(each, kPeerBlocks));
  return launch(stream, "all_reduce_parts", {blocks, kManyThreads}, kernel, p, x, n);
}

}  // namespace

bool staged(const Peers& p, int64_t n) {
  // What all others send a rank, in bytes of values: of more the words' counts cost more than a second trip.
#ifdef TERN_CUDA_EMULATED
  constexpr int64_t kStaged = int64_t{1} << 15;  // so that tests need not add up as many to reach both ways
#else
  constexpr int64_t kStaged = int64_t{1} << 20;
#endif
  return n <= int64_t{kPeerBlocks} * kStageFloats && n * 4 * (p.ranks - 1) <= kStaged;
}

Status all_reduce(const ops::AllReduceParams& params, device::Stream stream) {
  constexpr const char* kOp = "all_reduce";
  const int64_t n = params.x.numel();
  TERN_OP_CHECK(kOp,
                params.x.dtype == DType::kF32 && ops::is_rows(params.x) && params.x.stride[0] * params.x.dim[0] == n &&
                    reinterpret_cast<uintptr_t>(params.x.data) % 16 == 0,
                "x must be [T, H] of float32 without gaps, from an address that 16 divides");
  if (params.communicator.alone() || n == 0) return {};
  const Peers* p = peers_of(params.communicator);
  TERN_OP_CHECK(kOp, p != nullptr, "the communicator is none of GPUs");
  return reduce(*p, params.x.as<float>(), n, stream);
}

}  // namespace tern::cuda
