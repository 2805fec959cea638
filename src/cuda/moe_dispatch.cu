// The choice of experts and the sort by them in one kernel, for the few tokens of a decoding step.
#include <algorithm>

#include "cuda/cuda_ops.h"
#include "cuda/launch.cuh"
#include "cuda/moe_route.cuh"
#include "cuda/moe_sort.h"

namespace tern::cuda {
namespace {

constexpr int kAhead = 2;  // words of a thread that are on their way while it chooses
constexpr int kMostWarps = 32, kMostPairs = 32 * kMostWarps, kMostBlocks = 128, kPerWarp = 256;  // experts per row
constexpr int kFewPairs = 64;

struct SortArgs {
  int32_t* offsets;
  Rows<int32_t> row_of;
  const char* x;
  int64_t x_stride;  // bytes
  char* out;
  int64_t out_stride;  // bytes
  int words;           // of 16 bytes in a row
};

struct SortShared {
  uint16_t count[kMostWarps][kPerWarp];  // pairs of a warp by expert, then pairs of the warps before it
  int first[kPerWarp], sums[kMostWarps];
  int16_t ids[kMostPairs], rows[kMostPairs];
};

// Numbers the pairs in sh.ids by expert, in order of tokens: sh.rows, and the first row of every expert in sh.first.
// sh.count is zero. All threads; warps of 32 neighbouring pairs.
__device__ __forceinline__ void sort_pairs(SortShared& sh, int pairs) {
  const int i = threadIdx.x, lane = i & 31, warp = i / 32, warps = (pairs + 31) / 32;
  const int id = i < pairs ? sh.ids[i] : -1;
  const unsigned same = __match_any_sync(0xffffffffu, id);
  const int before = __popc(same & ((1u << lane) - 1));
  if (id >= 0 && before == 0) sh.count[warp][id] = static_cast<uint16_t>(__popc(same));
  __syncthreads();
  int run = 0, own = 0;
  if (i < kPerWarp) {
    for (int w = 0; w < warps; ++w) {
      const int here = sh.count[w][i];
      sh.count[w][i] = static_cast<uint16_t>(run);
      run += here;
    }
    own = run;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, run, d);
      if (lane >= d) run += other;
    }
    if (lane == 31) sh.sums[warp] = run;
  }
  __syncthreads();
  if (i < kPerWarp) {
    for (int w = 0; w < warp; ++w) run += sh.sums[w];
    sh.first[i] = run - own;
  }
  __syncthreads();
  if (id >= 0) sh.rows[i] = static_cast<int16_t>(sh.first[id] + sh.count[warp][id] + before);
}

// The same for at most kFewPairs pairs: each counts those that stand before it. All threads; sh.first is not filled in.
__device__ __forceinline__ void rank_pairs(SortShared& sh, int pairs) {
  const int i = threadIdx.x;
  if (i >= pairs) return;
  const int id = sh.ids[i];
  int before = 0;
  for (int j = 0; j < pairs; ++j) {
    const int other = sh.ids[j];
    before += other < id || (other == id && j < i) ? 1 : 0;
  }
  sh.rows[i] = static_cast<int16_t>(before);
}
__device__ __forceinline__ int pairs_below(const SortShared& sh, int pairs, int expert) {
  int below = 0;
  for (int j = 0; j < pairs; ++j) below += sh.ids[j] < expert ? 1 : 0;
  return below;
}

// Every block chooses and sorts for itself, the first one writes it down; each copies its share of the rows.
template <int kEach>
__global__ void __launch_bounds__(32 * kMostWarps) dispatch_kernel(const RouteArgs a, const SortArgs s, int tokens) {
  __shared__ SortShared sh;
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32, pairs = tokens * a.top_k;
  const bool writes = blockIdx.x == 0;
  const int threads = static_cast<int>(blockDim.x), warps = threads / 32;
  let_next_start();
  const LaneBias<kEach> bias(a);
  const bool rank = pairs <= kFewPairs;
  auto* zeros = reinterpret_cast<uint4*>(sh.count);
  const int counts = rank ? 0 : (pairs + 31) / 32 * kPerWarp / 8;
  for (int i = threadIdx.x; i < counts; i += threads) zeros[i] = make_uint4(0, 0, 0, 0);
  wait_for_previous();
  // The rows that this block copies do not wait for the choice, only where they go does.
  const auto pair_of = [&](int i) { return static_cast<int>(blockIdx.x) + i / s.words * static_cast<int>(gridDim.x); };
  const auto row_from = [&](int i) {
    return reinterpret_cast<const uint4*>(s.x + pair_of(i) / a.top_k * s.x_stride)[i % s.words];
  };
  const auto row_to = [&](int i) -> uint4& {
    return reinterpret_cast<uint4*>(s.out + sh.rows[pair_of(i)] * s.out_stride)[i % s.words];
  };
  const int mine =
      (pairs - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x) * s.words;
  uint4 ahead[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * threads;
    if (i < mine) ahead[j] = row_from(i);
  }
  for (int t = warp; t < tokens; t += warps) {
    const Ranked choice = route_row(a, a.logits.row(t), bias);
    if (lane >= a.top_k) continue;
    sh.ids[t * a.top_k + lane] = static_cast<int16_t>(choice.expert);
    if (writes) a.ids.row(t)[lane] = choice.expert, a.weights.row(t)[lane] = choice.weight;
  }
  __syncthreads();
  if (rank) {
    rank_pairs(sh, pairs);
  } else {
    sort_pairs(sh, pairs);
  }
  __syncthreads();
  if (writes) {
    for (int i = threadIdx.x; i < pairs; i += threads) s.row_of.row(i / a.top_k)[i % a.top_k] = sh.rows[i];
    for (int e = threadIdx.x; e <= a.experts; e += threads) {
      s.offsets[e] = e == a.experts ? pairs : rank ? pairs_below(sh, pairs, e) : sh.first[e];
    }
  }
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * threads;
    if (i < mine) row_to(i) = ahead[j];
  }
  for (int i = static_cast<int>(threadIdx.x) + kAhead * threads; i < mine; i += threads) row_to(i) = row_from(i);
}

}  // namespace

Status moe_dispatch(const ops::MoeDispatchParams& p, device::Stream stream) {
  const ops::MoePermuteParams& q = p.permute;
  const int64_t n = q.x.dim[0], pairs = n * p.route.top_k, width = q.x.dim[1];
  const bool few = n > 0 && pairs <= kMostPairs && route_fits_lanes(p.route) && can_vector(q.x, width) &&
                   can_vector(q.out, width) && q.experts == p.route.logits.dim[1] && q.ids.data == p.route.ids.data;
  if (!few) {
    TERN_RETURN_IF_ERROR(cuda::moe_route(p.route, stream));
    return cuda::moe_permute(q, stream);
  }
  TERN_ASSIGN_OR_RETURN(const RouteArgs a, route_args(p.route));
  TERN_RETURN_IF_ERROR(check_permute(q));
  const auto bytes = static_cast<int64_t>(dtype_bytes(q.x.dtype));
  const SortArgs s{q.offsets.as<int32_t>(),
                   rows_of<int32_t>(q.row_of),
                   static_cast<const char*>(q.x.data),
                   q.x.stride[0] * bytes,
                   static_cast<char*>(q.out.data),
                   q.out.stride[0] * bytes,
                   static_cast<int>(width * bytes / 16)};
  const auto warps = std::clamp<int64_t>(std::max(n, blocks_for(pairs, 32)), kPerWarp / 32, kMostWarps);
  const Shape shape{static_cast<unsigned>(std::min<int64_t>(pairs, kMostBlocks)), static_cast<unsigned>(32 * warps)};
  const auto tokens = static_cast<int>(n);
  if (a.experts <= 64) return launch(stream, "moe_dispatch", shape, dispatch_kernel<2>, a, s, tokens);
  if (a.experts <= 128) return launch(stream, "moe_dispatch", shape, dispatch_kernel<4>, a, s, tokens);
  return launch(stream, "moe_dispatch", shape, dispatch_kernel<8>, a, s, tokens);
}

}  // namespace tern::cuda
