// What stands before the experts of one or two tokens, in one cluster: the norm, the router's product, the choice and
// the sort. Every block has the weights of its experts in shared memory before the launch before has ended, norms all
// rows for itself and sends its experts' scores to the others; then all of them choose, and each copies its columns.
#include "base/checked.h"
#include "cuda/moe/moe_route.cuh"
#include "cuda/moe/moe_sort.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kClusterSize = 8, kThreads = 128, kWarps = kThreads / 32;
constexpr int kRows = 16, kMostExperts = kRows * kClusterSize;  // experts of a block, of all
// Of more tokens launches of their own are faster: every block norms all rows (a step of
// Qwen3-30B-A3B on an H100 with three: 5,514 us instead of 5,794).
constexpr int kMostTokens = 2, kMostPairs = 32;
constexpr int kQuads = 4, kMostWidth = 4 * kQuads * kThreads;  // four values of a row at a time, of a thread

struct EnterArgs {
  const float* w;  // of the router
  int64_t w_row;
  Rows<const float> delta;  // what the norm reads
  Rows<float> residual;
  const bf* norm_weight;
  float eps;
  Rows<bf> x;  // what it leaves, or what is there without it
  Rows<float> logits;
  int32_t* offsets;
  Rows<int32_t> row_of;
  Rows<bf> out;
  int tokens, width;
};

struct EnterShared {
  float logits[kMostTokens][kMostExperts];
  float parts[kWarps][kMostTokens * kRows];
  float squares[kMostTokens][kWarps];
  int expert[kMostPairs], row[kMostPairs];  // of a token's ranks
};
static_assert(sizeof(EnterShared) % 16 == 0);

// A block's share of `count` neighbours.
struct Share {
  int begin, end;
  __device__ __forceinline__ Share(int rank, int count)
      : begin(rank * count / kClusterSize), end((rank + 1) * count / kClusterSize) {}
  static int most(int count) { return count / kClusterSize + 1; }
};

// All that a block has in shared memory; in a cluster everything is where the launch says.
struct EnterMemory {
  EnterShared& sh;
  float4 *weights, *sums;  // [kRows][width / 4]; of the tokens' rows this block's columns
  uint4* x;                // [tokens][width / 8]
  int sum_row;             // quads
  __device__ __forceinline__ EnterMemory(uint4* memory, const EnterArgs& a)
      : sh(*reinterpret_cast<EnterShared*>(memory)),
        weights(reinterpret_cast<float4*>(memory + sizeof(EnterShared) / 16)),
        sums(weights + kRows * (a.width / 4)),
        x(reinterpret_cast<uint4*>(sums + a.tokens * (a.width / 4 / kClusterSize + 1))),
        sum_row(a.width / 4 / kClusterSize + 1) {}
  static size_t bytes(int tokens, int width) {
    return sizeof(EnterShared) + sizeof(float4) * static_cast<size_t>(kRows * (width / 4)) +
           sizeof(float4) * static_cast<size_t>(tokens * Share::most(width / 4)) +
           sizeof(uint4) * static_cast<size_t>(tokens * (width / 8));
  }
};

__device__ __forceinline__ void copy_weights(const EnterArgs& a, const EnterMemory& m, int experts, int rank) {
  const int quads = a.width / 4;
  for (int r = 0; r < kRows; ++r) {
    const int e = rank * kRows + r;
    const float* from = a.w + (e < experts ? e : 0) * a.w_row;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int i = static_cast<int>(threadIdx.x) + q * kThreads;
      if (i < quads) copy_async(m.weights + r * quads + i, from + 4 * i, e < experts ? 16 : 0);
    }
  }
  copy_commit();
}

__device__ __forceinline__ float dot_four(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

// A thread's part of the norm's weight.
struct NormWeight {
  uint2 v[kQuads];
  __device__ __forceinline__ explicit NormWeight(const EnterArgs& a) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int i = static_cast<int>(threadIdx.x) + q * kThreads;
      v[q] = i < a.width / 4 ? reinterpret_cast<const uint2*>(a.norm_weight)[i] : make_uint2(0, 0);
    }
  }
};

// Fills in m.x and m.sums, all rows on their way together: the arithmetic of rms_norm.
template <int kTokens>
__device__ __forceinline__ void norm_rows(const EnterArgs& a, const EnterMemory& m, const NormWeight& weight,
                                          int rank) {
  const int quads = a.width / 4, lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const Share share(rank, quads);
  float4 v[kTokens][kQuads];
#pragma unroll
  for (int b = 0; b < kTokens; ++b) {
    const int t = min(b, a.tokens - 1);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int i = static_cast<int>(threadIdx.x) + q * kThreads;
      v[b][q] = make_float4(0, 0, 0, 0);
      if (i >= quads) continue;
      v[b][q] = add_four(reinterpret_cast<const float4*>(a.delta.row(t))[i],
                         reinterpret_cast<const float4*>(a.residual.row(t))[i]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    float square = 0.0f;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) square += dot_four(v[t][q], v[t][q]);
    square = warp_sum(square);
    if (lane == 0) m.sh.squares[t][warp] = square;
  }
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= a.tokens) break;
    float square = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) square += m.sh.squares[t][w];
    const float scale = 1.0f / sqrtf(square / static_cast<float>(a.width) + a.eps);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int i = static_cast<int>(threadIdx.x) + q * kThreads;
      if (i >= quads) continue;
      const float4 w = unpack_four(weight.v[q]), f = v[t][q];
      reinterpret_cast<uint2*>(m.x)[t * quads + i] =
          make_uint2(pack2(f.x * scale * w.x, f.y * scale * w.y), pack2(f.z * scale * w.z, f.w * scale * w.w));
      if (i >= share.begin && i < share.end) m.sums[t * m.sum_row + i - share.begin] = f;
    }
  }
}

__device__ __forceinline__ void copy_rows(const EnterArgs& a, const EnterMemory& m) {
  const int words = a.width / 8;
  for (int i = threadIdx.x; i < a.tokens * words; i += kThreads) {
    copy_async(m.x + i, reinterpret_cast<const uint4*>(a.x.row(i / words)) + i % words, 16);
  }
  copy_commit();
}

// A thread's part of the scores: of token t and row r of the block in place t * kRows + r.
template <int kTokens>
__device__ __forceinline__ void multiply(float (&acc)[kTokens * kRows], const EnterArgs& a, const EnterMemory& m) {
  const int quads = a.width / 4;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int i = static_cast<int>(threadIdx.x) + q * kThreads;
    if (i >= quads) break;
    float4 x[kTokens];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      x[t] = unpack_four(reinterpret_cast<const uint2*>(m.x)[min(t, a.tokens - 1) * quads + i]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 w = m.weights[r * quads + i];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) acc[t * kRows + r] += dot_four(w, x[t]);
    }
  }
}

// Sums of all lanes, each lane left with one of them: `to` gets all.
template <int kCount>
__device__ __forceinline__ void add_lanes(float (&v)[kCount], float* to) {
  static_assert(kCount <= 32);
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int d = 16, half = kCount / 2; d > 0; d /= 2, half /= 2) {
    if (half == 0) {
      v[0] += __shfl_xor_sync(0xffffffffu, v[0], d);
      continue;
    }
    const bool upper = (lane & d) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      if (i >= half) break;
      const float send = upper ? v[i] : v[i + half], keep = upper ? v[i + half] : v[i];
      v[i] = keep + __shfl_xor_sync(0xffffffffu, send, d);
    }
  }
  to[lane / (32 / kCount)] = v[0];
}

// The scores of this block's experts, to all blocks.
template <int kTokens>
__device__ __forceinline__ void send_logits(const EnterMemory& m, int rank) {
  const int at = 2 * static_cast<int>(threadIdx.x), t = at / kRows, r = at % kRows;
  if (at >= kTokens * kRows) return;
  float sum[2] = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum[0] += m.sh.parts[w][at], sum[1] += m.sh.parts[w][at + 1];
  const auto both = static_cast<unsigned long long>(__float_as_uint(sum[1])) << 32 | __float_as_uint(sum[0]);
  auto* const own = reinterpret_cast<unsigned long long*>(&m.sh.logits[t][rank * kRows + r]);
#pragma unroll
  for (int b = 0; b < kClusterSize; ++b) cluster_store<kClusterSize>(own, b, both);
}

// Which row every pair of a token and an expert gets, experts in order, tokens in order within them.
__device__ __forceinline__ void sort_pairs(const EnterArgs& a, EnterShared& sh, int experts, int top_k, int rank) {
  const int pair = threadIdx.x, pairs = a.tokens * top_k;
  if (pair < pairs) {
    const int expert = sh.expert[pair];
    int row = 0;
    for (int i = 0; i < pairs; ++i) row += sh.expert[i] < expert || (sh.expert[i] == expert && i < pair);
    sh.row[pair] = row;
    if (rank == 0) a.row_of.row(pair / top_k)[pair % top_k] = row;
  }
  for (int e = threadIdx.x; rank == 1 && e <= experts; e += kThreads) {
    int before = 0;
    for (int i = 0; i < pairs; ++i) before += sh.expert[i] < e;
    a.offsets[e] = before;
  }
}

// What this block writes of the rows, once all blocks have read what they need.
template <bool kNorm>
__device__ __forceinline__ void epilogue_rows(const EnterArgs& a, const EnterMemory& m, int top_k, int rank) {
  const int words = a.width / 8, pairs = a.tokens * top_k;
  const Share columns(rank, words), quads(rank, a.width / 4);
  const int count = columns.end - columns.begin, sums = quads.end - quads.begin;
  for (int i = threadIdx.x; i < pairs * count; i += kThreads) {
    const int pair = i / count, c = columns.begin + i % count;
    reinterpret_cast<uint4*>(a.out.row(m.sh.row[pair]))[c] = m.x[pair / top_k * words + c];
  }
  if constexpr (kNorm) {
    for (int i = threadIdx.x; i < a.tokens * count; i += kThreads) {
      const int t = i / count, c = columns.begin + i % count;
      reinterpret_cast<uint4*>(a.x.row(t))[c] = m.x[t * words + c];
    }
    for (int i = threadIdx.x; i < a.tokens * sums; i += kThreads) {
      const int t = i / sums, c = i % sums;
      reinterpret_cast<float4*>(a.residual.row(t))[quads.begin + c] = m.sums[t * m.sum_row + c];
    }
  }
}

template <int kTokens, bool kNorm>
__global__ void __launch_bounds__(kThreads) enter_kernel(const RouteArgs route, const EnterArgs a) {
  extern __shared__ uint4 memory[];
  const EnterMemory m(memory, a);
  let_next_start();
  cluster_arrive<kClusterSize>();
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const int rank = static_cast<int>(blockIdx.x);
  copy_weights(a, m, route.experts, rank);
  bring_parameters(a, route);
  const LaneBias<kMostExperts / 32> bias(route);
  if constexpr (kNorm) {
    const NormWeight weight(a);
    wait_for_previous();
    norm_rows<kTokens>(a, m, weight, rank);
  } else {
    wait_for_previous();
    copy_rows(a, m);
  }
  copy_wait<0>();
  __syncthreads();
  float acc[kTokens * kRows] = {};
  multiply<kTokens>(acc, a, m);
  add_lanes(acc, m.sh.parts[warp]);
  __syncthreads();
  cluster_wait<kClusterSize>();
  send_logits<kTokens>(m, rank);
  cluster_barrier<kClusterSize>();
  if (warp < a.tokens) {
    const Ranked choice = route_row(route, m.sh.logits[warp], bias);
    if (lane < route.top_k) {
      m.sh.expert[warp * route.top_k + lane] = choice.expert;
      if (rank == 0) route.ids.row(warp)[lane] = choice.expert, route.weights.row(warp)[lane] = choice.weight;
    }
    for (int e = lane; rank == 2 && e < route.experts; e += 32) a.logits.row(warp)[e] = m.sh.logits[warp][e];
  }
  __syncthreads();
  sort_pairs(a, m.sh, route.experts, route.top_k, rank);
  __syncthreads();
  epilogue_rows<kNorm>(a, m, route.top_k, rank);
}

template <bool kNorm>
Status launch_enter(const RouteArgs& route, const EnterArgs& a, device::Stream stream) {
  const Shape shape{kClusterSize, kThreads, EnterMemory::bytes(a.tokens, a.width), kClusterSize};
  const char* name = kNorm ? "moe_dispatch_norm" : "moe_dispatch_router";
  if (a.tokens == 1) return launch(stream, name, shape, enter_kernel<1, kNorm>, route, a);
  return launch(stream, name, shape, enter_kernel<2, kNorm>, route, a);
}

bool is_rows_of(const TensorView& v, DType type, int64_t rows, int64_t width) {
  return v.dtype == type && ops::is_matrix(v, rows, width) && can_vector(v, width);
}

// Whether the norm can be done, too.
bool norm_fits(const ops::MoeDispatchParams& p) {
  const ops::RmsNormParams& q = p.norm;
  const TensorView& x = p.permute.x;
  return is_rows_of(q.x, DType::kF32, x.dim[0], x.dim[1]) && is_rows_of(q.residual, DType::kF32, x.dim[0], x.dim[1]) &&
         ops::is_vector(q.weight, DType::kBF16, x.dim[1]) && reinterpret_cast<uintptr_t>(q.weight.data) % 16 == 0 &&
         q.out.data == x.data && q.out.dtype == x.dtype && q.out.stride[0] == x.stride[0];
}

}  // namespace

bool dispatch_fits_router(const ops::MoeDispatchParams& p, device::Stream stream) {
  const StreamState& s = state(stream);
  const ops::MoePermuteParams& q = p.permute;
  const ops::LinearParams& r = p.router;
  const int64_t n = q.x.dim[0], width = q.x.dim[1];
  return s.arch >= 90 && waits_compiled() && !s.deterministic && n > 0 && n <= kMostTokens &&
         n * p.route.top_k <= kMostPairs && router_is_plain(p) && q.experts <= kMostExperts && width <= kMostWidth &&
         is_rows_of(q.x, DType::kBF16, n, width) && is_rows_of(q.out, DType::kBF16, n * p.route.top_k, width) &&
         q.experts == r.weight->n && width == r.weight->k && q.ids.data == p.route.ids.data && r.x.data == q.x.data &&
         r.x.stride[0] == q.x.stride[0] &&
         EnterMemory::bytes(static_cast<int>(n), static_cast<int>(width)) <= static_cast<size_t>(s.smem_limit);
}

Status moe_dispatch_router(const ops::MoeDispatchParams& p, device::Stream stream) {
  const ops::MoePermuteParams& q = p.permute;
  TERN_ASSIGN_OR_RETURN(const RouteArgs route, route_args(p.route));
  TERN_RETURN_IF_ERROR(check_permute(q));
  const bool norm = p.norm.x.data != nullptr, together = norm && norm_fits(p);
  if (norm && !together) TERN_RETURN_IF_ERROR(cuda::rms_norm(p.norm, stream));
  EnterArgs a{};
  a.w = reinterpret_cast<const float*>(p.router.weight->data.data()),
  a.w_row = round_up<int64_t>(p.router.weight->k, 8);
  a.x = rows_of<bf>(q.x), a.logits = rows_of<float>(p.route.logits);
  a.offsets = q.offsets.as<int32_t>(), a.row_of = rows_of<int32_t>(q.row_of), a.out = rows_of<bf>(q.out);
  a.tokens = static_cast<int>(q.x.dim[0]), a.width = static_cast<int>(q.x.dim[1]);
  if (!together) return launch_enter<false>(route, a, stream);
  a.delta = rows_of<const float>(p.norm.x), a.residual = rows_of<float>(p.norm.residual);
  a.norm_weight = p.norm.weight.as<const bf>(), a.eps = p.norm.eps;
  return launch_enter<true>(route, a, stream);
}

}  // namespace tern::cuda
