// The choice of experts and the sort by them in one kernel, for the few tokens of a decoding step. Of more tokens the
// choice may be made by the router's product.
#include <algorithm>

#include "base/checked.h"
#include "cuda/gemm/portable/gemm_mixed.cuh"
#include "cuda/moe/moe_route.cuh"
#include "cuda/moe/moe_sort.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kAhead = 2;  // words of a thread that are on their way while it chooses
constexpr int kMostPairs = 1024, kMostExperts = 256;
constexpr int kLeastWarps = kMostExperts / 32, kMostWarps = 16;  // of a block
constexpr int kClusterSize = 8;                                  // blocks of a cluster that choose for each other
constexpr int kMostBlocks = 128;

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
  int first[kMostExperts], sums[kLeastWarps];  // an expert's first row; what the experts of a warp have
  int16_t ids[kMostPairs];                     // of the tokens for which this block chooses
};
using TokenBits = uint32_t[kMostExperts];  // which of 32 tokens an expert has; a launch has as many as it needs

template <int kBlocks>
__device__ __forceinline__ void add_token(TokenBits* bits, int token, int expert) {
  uint32_t* const own = &bits[token / 32][expert];
#pragma unroll
  for (int r = 0; r < kBlocks; ++r) cluster_or<kBlocks>(own, r, 1u << (token % 32));
}

// Fills in sh.first: how many rows the experts before one have. All threads.
__device__ __forceinline__ void count_rows(SortShared& sh, const TokenBits* bits, int words) {
  const int e = threadIdx.x, lane = e & 31, warp = e / 32;
  int rows = 0, own = 0;
  if (e < kMostExperts) {
    for (int w = 0; w < words; ++w) own += __popc(bits[w][e]);
    rows = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, rows, d);
      if (lane >= d) rows += other;
    }
    if (lane == 31) sh.sums[warp] = rows;
  }
  __syncthreads();
  if (e < kMostExperts) {
#pragma unroll
    for (int w = 0; w < kLeastWarps; ++w) rows += w < warp ? sh.sums[w] : 0;
    sh.first[e] = rows - own;
  }
  __syncthreads();
}

// The row of a pair: behind the rows of the expert's tokens before this one.
__device__ __forceinline__ int row_of_pair(const SortShared& sh, const TokenBits* bits, int token, int expert) {
  int row = sh.first[expert] + __popc(bits[token / 32][expert] & ((1u << (token % 32)) - 1));
  for (int w = 0; w < token / 32; ++w) row += __popc(bits[w][expert]);
  return row;
}

// Clusters of kBlocks blocks, of which each chooses for its share of the tokens and tells the others; every cluster
// does that for itself and the first one writes it down. A block copies the rows of its own tokens, of which every
// cluster has its columns.
template <int kEach, int kBlocks>
__global__ void __launch_bounds__(32 * kMostWarps) dispatch_kernel(const RouteArgs a, const SortArgs s, int tokens) {
  __shared__ SortShared sh;
  extern __shared__ uint4 zeros[];
  auto* const bits = reinterpret_cast<TokenBits*>(zeros);
  let_next_start();
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const int threads = static_cast<int>(blockDim.x), words = (tokens + 31) / 32;
  const int cluster = static_cast<int>(blockIdx.x) / kBlocks, clusters = static_cast<int>(gridDim.x) / kBlocks;
  const int each = (tokens + kBlocks - 1) / kBlocks, t0 = static_cast<int>(blockIdx.x) % kBlocks * each;
  const int count = max(0, min(each, tokens - t0));
  const LaneBias<kEach> bias(a);
  for (int i = threadIdx.x; i < words * kMostExperts / 4; i += threads) zeros[i] = make_uint4(0, 0, 0, 0);
  bring_parameters(a, s);
  cluster_barrier<kBlocks>();
  wait_for_previous();
  // The rows that this block copies do not wait for the choice, only where they go does.
  const int c0 = cluster * s.words / clusters, columns = (cluster + 1) * s.words / clusters - c0;
  const int mine = count * a.top_k * columns;
  const auto row_from = [&](int i) {
    const int t = t0 + i / columns / a.top_k;
    return reinterpret_cast<const uint4*>(s.x + t * s.x_stride)[c0 + i % columns];
  };
  const auto row_to = [&](int i) -> uint4& {
    const int pair = i / columns, row = row_of_pair(sh, bits, t0 + pair / a.top_k, sh.ids[pair]);
    return reinterpret_cast<uint4*>(s.out + row * s.out_stride)[c0 + i % columns];
  };
  uint4 ahead[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * threads;
    if (i < mine) ahead[j] = row_from(i);
  }
  for (int t = warp; t < count; t += threads / 32) {
    const Ranked choice = route_row(a, a.logits.row(t0 + t), bias);
    if (lane >= a.top_k) continue;
    sh.ids[t * a.top_k + lane] = static_cast<int16_t>(choice.expert);
    add_token<kBlocks>(bits, t0 + t, choice.expert);
    if (cluster == 0) a.ids.row(t0 + t)[lane] = choice.expert, a.weights.row(t0 + t)[lane] = choice.weight;
  }
  cluster_barrier<kBlocks>();
  count_rows(sh, bits, words);
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * threads;
    if (i < mine) row_to(i) = ahead[j];
  }
  for (int i = static_cast<int>(threadIdx.x) + kAhead * threads; i < mine; i += threads) row_to(i) = row_from(i);
  if (cluster != 0) return;
  for (int i = threadIdx.x; i < count * a.top_k; i += threads) {
    const int t = t0 + i / a.top_k;
    s.row_of.row(t)[i % a.top_k] = row_of_pair(sh, bits, t, sh.ids[i]);
  }
  if (blockIdx.x != 0) return;
  for (int e = threadIdx.x; e <= a.experts; e += threads) {
    s.offsets[e] = e == a.experts ? tokens * a.top_k : sh.first[e];
  }
}

template <int kEach>
Status launch_dispatch(const RouteArgs& a, const SortArgs& s, int64_t tokens, device::Stream stream) {
  const auto warps = [](int64_t each) {
    return static_cast<unsigned>(32 * std::clamp<int64_t>(each, kLeastWarps, kMostWarps));
  };
  const size_t bytes = static_cast<size_t>(blocks_for(tokens, 32)) * sizeof(TokenBits);
  // Up to here every warp of a block by itself has one token at most.
  if (tokens > kLeastWarps && state(stream).arch >= 90 && waits_compiled()) {
    const auto clusters = static_cast<unsigned>(std::min(s.words, kMostBlocks / kClusterSize));
    return launch(stream, "moe_dispatch_cluster",
                  {clusters * kClusterSize, warps(blocks_for(tokens, kClusterSize)), bytes, kClusterSize},
                  dispatch_kernel<kEach, kClusterSize>, a, s, static_cast<int>(tokens));
  }
  const auto blocks = static_cast<unsigned>(std::min<int64_t>({s.words, kMostBlocks, tokens * kClusterSize}));
  return launch(stream, "moe_dispatch", {blocks, warps(tokens), bytes}, dispatch_kernel<kEach, 1>, a, s,
                static_cast<int>(tokens));
}

// Does the router's product and the choice in one, or says that it cannot.
Expected<bool> choose_by_router(const ops::MoeDispatchParams& p, device::Stream stream) {
  if (!router_is_plain(p)) return false;
  const TensorView &x = p.router.x, &logits = p.route.logits;
  const ops::PackedWeight& w = *p.router.weight;
  Gemm g;
  g.x = x.data, g.x_row = x.stride[0];
  g.w_bf16 = false, g.w_row = round_up<int64_t>(w.k, 8);
  g.out = logits.data, g.out_bf16 = false, g.out_row = logits.stride[0];
  g.rows = x.dim[0], g.n = w.n, g.k = w.k;
  if (!router_chooses(g, stream)) return false;
  TERN_ASSIGN_OR_RETURN(const RouteArgs route, route_args(p.route));
  TERN_RETURN_IF_ERROR(launch_deferred(stream));
  TERN_RETURN_IF_ERROR(gemm_router_choice(g, w.data.data(), route, stream));
  return true;
}

}  // namespace

bool router_is_plain(const ops::MoeDispatchParams& p) {
  const ops::LinearParams& r = p.router;
  const TensorView &x = r.x, &logits = p.route.logits;
  return route_fits_lanes(p.route) && r.weight->format == find_weight_format("f32") && r.bias.data == nullptr &&
         x.dtype == DType::kBF16 && ops::is_matrix(x, x.dim[0], r.weight->k) && r.out.data == logits.data &&
         logits.dtype == DType::kF32 && ops::is_matrix(logits, x.dim[0], r.weight->n);
}

Status moe_dispatch(const ops::MoeDispatchParams& p, device::Stream stream) {
  const ops::MoePermuteParams& q = p.permute;
  const int64_t n = q.x.dim[0], pairs = n * p.route.top_k, width = q.x.dim[1];
  const bool few = n > 0 && pairs <= kMostPairs && route_fits_lanes(p.route) && can_vector(q.x, width) &&
                   can_vector(q.out, width) && q.experts == p.route.logits.dim[1] && q.ids.data == p.route.ids.data;
  bool chosen = false;
  if (p.router.weight != nullptr) {
    if (dispatch_fits_router(p, stream)) return moe_dispatch_router(p, stream);
    if (p.norm.x.data != nullptr) TERN_RETURN_IF_ERROR(cuda::rms_norm(p.norm, stream));
    if (!few) {
      TERN_ASSIGN_OR_RETURN(chosen, choose_by_router(p, stream));
    }
    if (!chosen) TERN_RETURN_IF_ERROR(p.router.weight->format->run(p.router, stream));
  }
  if (!few) {
    if (!chosen) TERN_RETURN_IF_ERROR(cuda::moe_route(p.route, stream));
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
  if (a.experts <= 64) return launch_dispatch<2>(a, s, n, stream);
  if (a.experts <= 128) return launch_dispatch<4>(a, s, n, stream);
  return launch_dispatch<8>(a, s, n, stream);
}

}  // namespace tern::cuda
