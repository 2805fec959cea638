// Products of bfloat16 rows with few float32 weight rows (routers of experts, gates) on tensor cores: a float32 value
// is the sum of three bfloat16 values, and every product with one of those is exact.
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/portable/gemm_mixed.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"

namespace tern::cuda {
namespace {

constexpr int kWeightRows = 16, kTokens = kMixedTokens, kManyTokens = 64, kParts = 16;
constexpr int kClusterSize = 8;  // blocks of a cluster that share the k of a tile
constexpr int kThinRows = 32;    // up to which a cluster has eight tokens: the more clusters, the sooner they end
constexpr int kManyRows = 2048;  // from which on tiles of kManyTokens fill the GPU

// Sums of part `p`, in the memory of the block that has it.
template <int kBlocks>
__device__ __forceinline__ float load_part(const float* at, int p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    float v;
    asm volatile(
        "{.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [there];}\n"
        : "=f"(v)
        : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(at))), "r"(p / (kParts / kBlocks))
        : "memory");
    return v;
  }
#elif defined(TERN_EMULATED)
  if constexpr (kBlocks > 1) return *static_cast<float*>(emu::of_block(at, p / (kParts / kBlocks)));
#endif
  return *at;
}

template <int kBlocks>
__device__ __forceinline__ void cluster_barrier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    return;
  }
#elif defined(TERN_EMULATED)
  if constexpr (kBlocks > 1) {
    emu::arrive_cluster(), emu::wait_cluster();
    return;
  }
#endif
  __syncthreads();
}

// This block's share of the sums, of parts that all blocks of the cluster have.
template <int kBlocks, int kPitch>
__device__ __forceinline__ void add_parts(const Gemm& g, const float (*parts)[kWeightRows][kPitch], int rank,
                                          int64_t n0, int64_t t0) {
  constexpr int kWide = kPitch - 1;
  for (int i = rank * 32 * (kParts / kBlocks) + static_cast<int>(threadIdx.x); i < kWeightRows * kWide;
       i += 32 * kParts) {
    const int r = i % kWeightRows, t = i / kWeightRows;
    float sum = load_part<kBlocks>(&parts[0][r][t], 0);
#pragma unroll
    for (int s = 1; s < kParts; ++s) sum += load_part<kBlocks>(&parts[s % (kParts / kBlocks)][r][t], s);
    if (t0 + t >= g.rows || n0 + r >= g.n) continue;
    if (g.bias != nullptr) sum += g.bias[n0 + r];
    const int64_t offset = (t0 + t) * g.out_row + n0 + r;
    if (g.out_bf16) {
      static_cast<bf*>(g.out)[offset] = from_float<bf>(sum);
    } else {
      static_cast<float*>(g.out)[offset] = sum;
    }
  }
}

// 16 weight rows times 8 kPieces tokens per cluster of kBlocks blocks. k is dealt out to 16 warps in runs of 16; their
// sums are added in order: the same for every number of tokens and blocks.
template <int kBlocks, int kPieces>
__global__ void __launch_bounds__(32 * kParts / kBlocks) mixed_kernel(const Gemm g, const float* w) {
  constexpr int kWarps = kParts / kBlocks, kWide = 8 * kPieces;
  constexpr int kTogether = kPieces > 4 ? 2 : 4;                   // steps of k whose tokens are on their way together
  constexpr int kSteps = kBlocks > 1 ? 2 * kTogether : kTogether;  // of k whose weights are on their way together
  extern __shared__ float memory[];
  auto* const parts = reinterpret_cast<float(*)[kWeightRows][kWide + 1]>(memory);
  let_next_start();
  const int rank = static_cast<int>(blockIdx.x) % kBlocks, own = static_cast<int>(threadIdx.x) / 32;
  // The four values of k that a lane has of 16 are neighbours, of weights and tokens alike.
  const int lane = threadIdx.x & 31, row = lane / 4, four = lane % 4 * 4;
  const int64_t n0 = int64_t{blockIdx.x / kBlocks} * kWeightRows, t0 = int64_t{blockIdx.y} * kWide;
  const bf* x = static_cast<const bf*>(g.x);
  const auto weight = [&](int r, int64_t k) {
    return n0 + r < g.n && k < g.k ? *reinterpret_cast<const float4*>(w + (n0 + r) * g.w_row + k)
                                   : make_float4(0, 0, 0, 0);
  };
  const auto token = [&](int64_t t, int64_t k) {
    return t < g.rows && k < g.k ? *reinterpret_cast<const uint2*>(x + t * g.x_row + k) : make_uint2(0, 0);
  };
  float acc[kPieces][4] = {};
  const int64_t end = (g.k + 15) / 16 * 16;
  for (int64_t k0 = (rank * kWarps + own) * 16 + four; k0 < end; k0 += kSteps * kParts * 16) {
    float4 w4[kSteps][2];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) w4[s][i] = weight(row + i * 8, k0 + s * kParts * 16);
    }
    if (k0 < kParts * 16) bring_parameters(g);
    wait_for_previous();  // weights are never written by a step, x is
#pragma unroll
    for (int s0 = 0; s0 < kSteps; s0 += kTogether) {
      uint2 x2[kTogether][kPieces];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const int64_t k = k0 + (s0 + s) * kParts * 16;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) x2[s][p] = token(t0 + p * 8 + row, k);
      }
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        uint32_t high[4], middle[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4& from = w4[s0 + s][i % 2];
          const Split v = split(i < 2 ? make_float2(from.x, from.y) : make_float2(from.z, from.w));
          high[i] = v.high, middle[i] = v.middle, low[i] = v.low;
        }
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          const uint32_t tokens[2] = {x2[s][p].x, x2[s][p].y};
          mma(acc[p], low, tokens);
          mma(acc[p], middle, tokens);
          mma(acc[p], high, tokens);
        }
      }
    }
  }
  wait_for_previous();
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
#pragma unroll
    for (int v = 0; v < 4; ++v) parts[own][row + v / 2 * 8][p * 8 + lane % 4 * 2 + v % 2] = acc[p][v];
  }
  cluster_barrier<kBlocks>();
  add_parts<kBlocks>(g, parts, rank, n0, t0);
  if constexpr (kBlocks > 1) cluster_barrier<kBlocks>();  // nobody leaves while others read
}

}  // namespace

Status gemm_mixed(const Gemm& g, const void* weight, device::Stream stream) {
  if (router_fits(g, stream)) return gemm_router(g, weight, stream);
  const auto tiles = static_cast<unsigned>(blocks_for(g.n, kWeightRows));
  const auto* w = static_cast<const float*>(weight);
  const auto rows = [&](int each) { return static_cast<unsigned>(blocks_for(g.rows, each)); };
  const auto bytes = [](int warps, int each) { return sizeof(float) * warps * kWeightRows * (each + 1); };
  // Few rows: more blocks, which share a tile.
  if (state(stream).arch >= 90 && waits_compiled() && g.rows <= kClusterRows) {
    constexpr int kWarps = kParts / kClusterSize;
    const auto shape = [&](int each) {
      return Shape{dim3(tiles * kClusterSize, rows(each)), 32 * kWarps, bytes(kWarps, each), kClusterSize};
    };
    if (g.rows <= kThinRows) return launch(stream, "gemm_mixed_cluster", shape(8), mixed_kernel<kClusterSize, 1>, g, w);
    return launch(stream, "gemm_mixed_cluster", shape(kTokens), mixed_kernel<kClusterSize, kTokens / 8>, g, w);
  }
  const auto shape = [&](int each) { return Shape{dim3(tiles, rows(each)), 32 * kParts, bytes(kParts, each)}; };
  // Many rows: fewer of them read each weight again.
  const Shape many = shape(kManyTokens);
  if (g.rows >= kManyRows && many.shared <= static_cast<size_t>(state(stream).smem_limit)) {
    return launch(stream, "gemm_mixed_many", many, mixed_kernel<1, kManyTokens / 8>, g, w);
  }
  return launch(stream, "gemm_mixed", shape(kTokens), mixed_kernel<1, kTokens / 8>, g, w);
}

}  // namespace tern::cuda
