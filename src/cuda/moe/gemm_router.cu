// Products of many bfloat16 rows with a float32 weight of a router's size, on tensor cores. Tiles of 128 weight rows
// take so many tokens that little is read twice, and clusters share the k of a tile, so that all multiprocessors have
// work. Clusters find room on fewer multiprocessors than there are: what they cannot do at once takes twice as long. A
// weight that was bfloat16 costs one product of three: the rest of its values is zero. Who adds up the scores of a
// token may choose its experts at once.
#include <type_traits>

#include "cuda/gemm/portable/gemm_mixed.cuh"
#include "cuda/moe/moe_route.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/cluster_count.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"

namespace tern::cuda {
namespace {

constexpr int kWeightRows = 128, kWarps = kWeightRows / 16, kThreads = 32 * kWarps;
constexpr int kK = 64, kSteps = kK / 16;  // of a stage
constexpr int kDepth = 3;                 // stages of tokens
constexpr int kResident = 4;              // stages of which a block may have everything under way at once
constexpr int kLeastColumns = 33;         // fewer leave most warps without weights

template <int kPieces_, int kClusterSize_>
struct RouterTile {
  static constexpr int kPieces = kPieces_, kClusterSize = kClusterSize_, kTokens = 8 * kPieces;
  static constexpr int kPitch = kK * 2 + 32;  // bytes from token to token: a warp reads 32 bytes of eight of them
  static constexpr int kStage = kTokens * kPitch;
  static constexpr int kPartPitch = kWeightRows + 4;  // floats
  static constexpr size_t kPart = sizeof(float) * kTokens * kPartPitch;
  static constexpr int kShare = kTokens / kClusterSize;  // tokens that a block adds up
  static constexpr size_t kScores = sizeof(float) * kShare * kWeightRows;
  static constexpr size_t bytes(int stages) {
    return kPart > static_cast<size_t>(stages * kStage) ? kPart : static_cast<size_t>(stages * kStage);
  }
  // Of a multiprocessor; kAll: weights of all stages lie in registers.
  template <bool kAll>
  static constexpr int blocks() {
    return !kAll && kPieces <= 8 ? 2 : 1;
  }
};

// What follows the scores: nothing, or the choice of experts by a warp for each token, of up to 32 kEach experts.
struct NoChoice {
  static constexpr bool kMade = false;
};
template <int kEach_>
struct RouterChoice {
  static constexpr bool kMade = true;
  static constexpr int kEach = kEach_;
  RouteArgs route;
};

// A lane's weights of a stage: four neighbours of k of two rows per step.
struct RouterWeights {
  float4 v[kSteps][2];
};

__device__ __forceinline__ void load_weights(RouterWeights& to, const Gemm& g, const float* w, int64_t row,
                                             int64_t k0) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t k = k0 + 16 * s;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to.v[s][i] = row + 8 * i < g.n && k < g.k ? *reinterpret_cast<const float4*>(w + (row + 8 * i) * g.w_row + k)
                                                : make_float4(0, 0, 0, 0);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void load_tokens(char* stage, const Gemm& g, int64_t t0, int64_t k0) {
  const int piece = static_cast<int>(threadIdx.x) % 8, first = static_cast<int>(threadIdx.x) / 8;
  const int64_t k = k0 + piece * 8;
  const bf* const x = static_cast<const bf*>(g.x);
#pragma unroll
  for (int i = 0; i < (Tile::kTokens * 8 + kThreads - 1) / kThreads; ++i) {
    const int t = first + i * (kThreads / 8);
    if (t >= Tile::kTokens) break;
    const bool there = t0 + t < g.rows && k < g.k;
    copy_async(stage + t * Tile::kPitch + piece * 16, there ? x + (t0 + t) * g.x_row + k : x, there ? 16 : 0);
  }
}

template <class Tile, bool kShort>
__device__ __forceinline__ void multiply_step(float (&acc)[Tile::kPieces][4], const char* tokens,
                                              const uint32_t (&low)[4], const uint32_t (&middle)[4],
                                              const uint32_t (&high)[4]) {
  uint32_t b[Tile::kPieces][2];
#pragma unroll
  for (int p = 0; p < Tile::kPieces; ++p) {
    const auto two = *reinterpret_cast<const uint2*>(tokens + p * 8 * Tile::kPitch);
    b[p][0] = two.x, b[p][1] = two.y;
  }
  // Sums that follow each other are of different tokens: none waits for the one before.
  const auto multiply = [&](const uint32_t(&part)[4]) {
#pragma unroll
    for (int p = 0; p < Tile::kPieces; ++p) mma(acc[p], part, b[p]);
  };
  if constexpr (!kShort) multiply(low), multiply(middle);
  multiply(high);
}

// `tokens`: this lane's values of its first token.
template <class Tile>
__device__ __forceinline__ void multiply_stage(float (&acc)[Tile::kPieces][4], const char* tokens,
                                               const RouterWeights& weights) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    uint32_t high[4], middle[4], low[4], rest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4& from = weights.v[s][i % 2];
      const Split v = split(i < 2 ? make_float2(from.x, from.y) : make_float2(from.z, from.w));
      high[i] = v.high, middle[i] = v.middle, low[i] = v.low;
      rest |= middle[i] | low[i];
    }
    if (__ballot_sync(0xffffffffu, rest != 0) == 0) {
      multiply_step<Tile, true>(acc, tokens + s * 32, low, middle, high);
    } else {
      multiply_step<Tile, false>(acc, tokens + s * 32, low, middle, high);
    }
  }
}

// Every block adds up its share of the tokens, of parts that all blocks of the cluster have. `scores`: null, or where
// they go besides, [kShare][kWeightRows].
template <class Tile>
__device__ __forceinline__ void add_parts(const Gemm& g, const float* parts, int rank, int64_t t0, int64_t n0,
                                          float* scores) {
  constexpr int kQuads = kWeightRows / 4, kTogether = kThreads / kQuads;  // tokens
  const int column = static_cast<int>(threadIdx.x) % kQuads * 4;
#pragma unroll
  for (int i = 0; i < (Tile::kShare + kTogether - 1) / kTogether; ++i) {
    const int own_t = i * kTogether + static_cast<int>(threadIdx.x) / kQuads, t = rank * Tile::kShare + own_t;
    if (own_t >= Tile::kShare) break;
    const auto* const own = reinterpret_cast<const float4*>(parts + t * Tile::kPartPitch + column);
    float sum[4] = {};
#pragma unroll
    for (int r = 0; r < Tile::kClusterSize; ++r) {
      const float4 v = cluster_load<Tile::kClusterSize>(own, r);
      sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
    if (scores != nullptr) {
      *reinterpret_cast<float4*>(scores + own_t * kWeightRows + column) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    }
    if (t0 + t >= g.rows) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int64_t n = n0 + column + c, offset = (t0 + t) * g.out_row + n;
      if (n >= g.n) break;
      const float v = g.bias == nullptr ? sum[c] : sum[c] + g.bias[n];
      if (g.out_bf16) {
        static_cast<bf*>(g.out)[offset] = from_float<bf>(v);
      } else {
        static_cast<float*>(g.out)[offset] = v;
      }
    }
  }
}

// Chooses for this block's share of the tokens from `t0` on.
template <class Tile, class Choice>
__device__ __forceinline__ void choose_experts(const Choice& choice, const LaneBias<Choice::kEach>& bias,
                                               const float* scores, int64_t t0, int64_t tokens) {
  const int lane = threadIdx.x & 31;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < Tile::kShare && t0 + i < tokens; i += kWarps) {
    const Ranked mine = route_row(choice.route, scores + i * kWeightRows, bias);
    if (lane >= choice.route.top_k) continue;
    choice.route.ids.row(t0 + i)[lane] = mine.expert, choice.route.weights.row(t0 + i)[lane] = mine.weight;
  }
}

// A block's stages of k.
struct RouterWork {
  int64_t t0, n0, row;  // first token and row of the weight; a lane's row
  int first, stages;
  template <class Tile>
  static __device__ RouterWork of(const Gemm& g) {
    RouterWork a;
    const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
    const int rank = static_cast<int>(blockIdx.x) % Tile::kClusterSize, all = static_cast<int>((g.k + kK - 1) / kK);
    a.t0 = int64_t{blockIdx.x / Tile::kClusterSize} * Tile::kTokens, a.n0 = int64_t{blockIdx.y} * kWeightRows;
    a.row = a.n0 + warp * 16 + lane / 4;
    a.first = rank * all / Tile::kClusterSize, a.stages = (rank + 1) * all / Tile::kClusterSize - a.first;
    return a;
  }
  __device__ __forceinline__ int64_t k(int i) const { return int64_t{first + i} * kK; }
  // Nothing behind the last stage.
  __device__ __forceinline__ void weights(RouterWeights& to, const Gemm& g, const float* w, int i) const {
    load_weights(to, g, w, row, i < stages ? k(i) + threadIdx.x % 4 * 4 : g.k);
  }
};

// With weights of one stage under way while those of another are in use.
template <class Tile>
__device__ __forceinline__ void multiply_in_turn(float (&acc)[Tile::kPieces][4], const Gemm& g, const float* w,
                                                 const RouterWork& work, char* ring, int own) {
  RouterWeights weights;
  work.weights(weights, g, w, 0);
  wait_for_previous();  // weights are never written by a step, x is
  for (int i = 0; i < kDepth - 1; ++i) {
    if (i < work.stages) load_tokens<Tile>(ring + i * Tile::kStage, g, work.t0, work.k(i));
    copy_commit();
  }
  for (int i = 0; i < work.stages; ++i) {
    RouterWeights next;
    work.weights(next, g, w, i + 1);
    copy_wait<kDepth - 2>();
    __syncthreads();
    const int ahead = i + kDepth - 1;
    if (ahead < work.stages) load_tokens<Tile>(ring + ahead % kDepth * Tile::kStage, g, work.t0, work.k(ahead));
    copy_commit();
    multiply_stage<Tile>(acc, ring + i % kDepth * Tile::kStage + own, weights);
    weights = next;
  }
}

// With all of them under way before the wait: of up to kResident stages.
template <class Tile>
__device__ __forceinline__ void multiply_register_resident(float (&acc)[Tile::kPieces][4], const Gemm& g,
                                                           const float* w, const RouterWork& work, char* ring,
                                                           int own) {
  RouterWeights weights[kResident];
#pragma unroll
  for (int i = 0; i < kResident; ++i) work.weights(weights[i], g, w, i);
  bring_parameters(g);
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < kResident; ++i) {
    if (i < work.stages) load_tokens<Tile>(ring + i * Tile::kStage, g, work.t0, work.k(i));
    copy_commit();
  }
  const auto stage = [&](auto left, int i) {
    copy_wait<decltype(left)::value>();
    __syncthreads();
    if (i < work.stages) multiply_stage<Tile>(acc, ring + i * Tile::kStage + own, weights[i]);
  };
  static_assert(kResident == 4);
  stage(std::integral_constant<int, 3>(), 0), stage(std::integral_constant<int, 2>(), 1);
  stage(std::integral_constant<int, 1>(), 2), stage(std::integral_constant<int, 0>(), 3);
}

template <class Tile, bool kAll, class Choice>
__global__ void __launch_bounds__(kThreads, Tile::template blocks<kAll>())
    router_kernel(const Gemm g, const float* w, const Choice choice) {
  extern __shared__ uint4 memory[];
  char* const ring = reinterpret_cast<char*>(memory);
  let_next_start();
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const int rank = static_cast<int>(blockIdx.x) % Tile::kClusterSize, own = lane / 4 * Tile::kPitch + lane % 4 * 8;
  const RouterWork work = RouterWork::of<Tile>(g);
  float acc[Tile::kPieces][4] = {};
  if constexpr (kAll) {
    multiply_register_resident<Tile>(acc, g, w, work, ring, own);
  } else {
    multiply_in_turn<Tile>(acc, g, w, work, ring, own);
  }
  __syncthreads();
  auto* const parts = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int p = 0; p < Tile::kPieces; ++p) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      parts[(p * 8 + lane % 4 * 2 + v % 2) * Tile::kPartPitch + warp * 16 + lane / 4 + v / 2 * 8] = acc[p][v];
    }
  }
  cluster_barrier<Tile::kClusterSize>();
  if constexpr (Choice::kMade) {
    auto* const scores = reinterpret_cast<float*>(ring + Tile::bytes(kAll ? kResident : kDepth));
    const LaneBias<Choice::kEach> bias(choice.route);
    add_parts<Tile>(g, parts, rank, work.t0, work.n0, scores);
    cluster_arrive<Tile::kClusterSize>();
    __syncthreads();
    choose_experts<Tile>(choice, bias, scores, work.t0 + rank * Tile::kShare, g.rows);
  } else {
    add_parts<Tile>(g, parts, rank, work.t0, work.n0, nullptr);
    cluster_arrive<Tile::kClusterSize>();
  }
  cluster_wait<Tile::kClusterSize>();  // nobody leaves while others read
}

template <class Tile, bool kAll, class Choice>
Shape router_shape(const Gemm& g) {
  const dim3 grid(static_cast<unsigned>(blocks_for(g.rows, Tile::kTokens) * Tile::kClusterSize),
                  static_cast<unsigned>(blocks_for(g.n, kWeightRows)));
  return {grid, kThreads, Tile::bytes(kAll ? kResident : kDepth) + (Choice::kMade ? Tile::kScores : 0),
          Tile::kClusterSize};
}

template <class Tile, bool kAll, class Choice>
Status launch_router(const Gemm& g, const float* w, const Choice& choice, device::Stream stream) {
  return launch(stream, Choice::kMade ? "gemm_router_choice" : "gemm_router", router_shape<Tile, kAll, Choice>(g),
                router_kernel<Tile, kAll, Choice>, g, w, choice);
}

// In how many turns all clusters run.
template <class Tile, bool kAll, class Choice>
int64_t router_turns(const Gemm& g, device::Stream stream) {
  static ClusterCount count;
  Shape one = router_shape<Tile, kAll, Choice>(g);
  one.grid = dim3(1);
  const int at_once =
      count.of("gemm_router", router_kernel<Tile, kAll, Choice>, one, Tile::template blocks<kAll>(), stream);
  return blocks_for(blocks_for(g.rows, Tile::kTokens) * blocks_for(g.n, kWeightRows), std::max(at_once, 1));
}

using SmallTile = RouterTile<8, 8>;
using WiderTile = RouterTile<9, 8>;  // a warp has two tokens to choose for, but 1,024 tokens find room at once

// Small tiles as long as all of them run at once.
bool small_tiles(const Gemm& g, device::Stream stream) {
  return router_turns<SmallTile, false, NoChoice>(g, stream) == 1;
}

template <class Choice>
Status run_router(const Gemm& g, const void* weight, const Choice& choice, device::Stream stream) {
  const auto* w = static_cast<const float*>(weight);
  if constexpr (!Choice::kMade) {
    using Large = RouterTile<16, 4>;
    using Larger = RouterTile<20, 4>;
    if (!small_tiles(g, stream)) {
      const int64_t large = Large::kPieces * router_turns<Large, false, Choice>(g, stream);
      const int64_t larger = Larger::kPieces * router_turns<Larger, false, Choice>(g, stream);
      if (larger < large) return launch_router<Larger, false>(g, w, choice, stream);
      return launch_router<Large, false>(g, w, choice, stream);
    }
  }
  if (g.k <= int64_t{SmallTile::kClusterSize} * kResident * kK) {
    if (router_turns<SmallTile, true, Choice>(g, stream) == 1) {
      return launch_router<SmallTile, true>(g, w, choice, stream);
    }
    if (router_turns<WiderTile, true, Choice>(g, stream) == 1) {
      return launch_router<WiderTile, true>(g, w, choice, stream);
    }
  }
  return launch_router<SmallTile, false>(g, w, choice, stream);
}

}  // namespace

bool router_fits(const Gemm& g, device::Stream stream) {
  const StreamState& s = state(stream);
  return s.arch >= 90 && waits_compiled() && !s.deterministic && g.rows > kClusterRows && g.n >= kLeastColumns &&
         g.x_row % 8 == 0 && reinterpret_cast<uintptr_t>(g.x) % 16 == 0 &&
         RouterTile<20, 4>::bytes(kDepth) <= static_cast<size_t>(s.smem_limit);
}

Status gemm_router(const Gemm& g, const void* weight, device::Stream stream) {
  return run_router(g, weight, NoChoice(), stream);
}

bool router_chooses(const Gemm& g, device::Stream stream) {
  // Of larger tiles a warp would have more tokens to choose for, one after the other.
  return mixed_fits(g) && router_fits(g, stream) && small_tiles(g, stream) && g.n <= kWeightRows && g.bias == nullptr &&
         !g.out_bf16;
}

Status gemm_router_choice(const Gemm& g, const void* weight, const RouteArgs& route, device::Stream stream) {
  if (g.n <= 64) return run_router(g, weight, RouterChoice<2>{route}, stream);
  return run_router(g, weight, RouterChoice<4>{route}, stream);
}

}  // namespace tern::cuda
