// Products of up to eight rows, where waiting is what counts: a warp holds 16 rows of the weight times kRun values of k
// in registers, the first of them read before the launch has to wait for the one before it. A block's warps share the
// rows and deal k out among them; their sums meet in shared memory. Many small blocks, which take turns as they end:
// the memory stays busy and no tile is cut between blocks.
#include "cuda/gemm.h"
#include "cuda/launch.cuh"
#include "cuda/mma.cuh"

namespace tern::cuda {
namespace {

// Eight values of a weight, which nothing writes during a step. Strong, because the assembler moves other loads behind
// the wait for the launch before.
__device__ __forceinline__ uint4 load_early(const bf* p) {
#ifdef __CUDA_ARCH__
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
#else
  return *reinterpret_cast<const uint4*>(p);
#endif
}

// A warp's share of the weight. A lane's values of k are eight neighbours of every 32: the order of k inside a step of
// the tensor cores is free as long as both sides have the same. With a gate a lane holds rows of gate and of up.
template <int kRun, int kGroups>
struct HeldWeight {
  static constexpr int kLoads = kRun / 32;
  uint4 w[kGroups][2][kLoads];
  __device__ __forceinline__ void load(const Gemm& g, const bf* weight, int64_t k) {
    const int64_t n = g.gated ? g.n / 2 : g.n;
    const int64_t row0 = int64_t{blockIdx.x} * kGroups * (g.gated ? 8 : 16) + (threadIdx.x & 31) / 4;
#pragma unroll
    for (int r = 0; r < kGroups; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t row = g.gated ? row0 + 8 * r : row0 + 16 * r + 8 * h;
        const bf* from = weight + (g.gated ? row + h * n : row) * g.w_row + k;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          w[r][h][i] = row < n && k + 32 * i < g.k ? load_early(from + 32 * i) : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }
};

// Values [token][col] of out; `up` is read with a gate.
__device__ __forceinline__ void store_held(const Gemm& g, int64_t n, int64_t token, int64_t col, float v, float up) {
  if (token >= g.rows || col >= n) return;
  if (g.bias != nullptr) v += g.bias[col];
  if (g.gated) v = silu(v) * (g.bias == nullptr ? up : up + g.bias[n + col]);
  const int64_t offset = token * g.out_row + col;
  if (g.out_bf16) {
    static_cast<bf*>(g.out)[offset] = from_float<bf>(v);
  } else {
    static_cast<float*>(g.out)[offset] = v;
  }
}

template <int kRun, int kGroups, int kThreads>
__global__ void __launch_bounds__(kThreads) held_kernel(const Gemm g, const bf* weight) {
  extern __shared__ float4 parts[];  // [warps][kGroups][32]
  constexpr int kLoads = kRun / 32;
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, warps = blockDim.x / 32;
  const int64_t begin = int64_t{warp} * kRun + lane % 4 * 8, step = int64_t{warps} * kRun;
  const bf* x = static_cast<const bf*>(g.x) + lane / 4 * g.x_row;
  const bool token = lane / 4 < g.rows;
  HeldWeight<kRun, kGroups> held;
  held.load(g, weight, begin);
  wait_for_previous();
  float acc[kGroups][4] = {};
  // Lanes of a warp differ in k by less than kRun, of which k is no multiple: all stay until the warp's last run.
  for (int64_t k = begin;;) {
    uint4 b[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      b[i] = token && k + 32 * i < g.k ? load_early(x + k + 32 * i) : make_uint4(0, 0, 0, 0);
    }
    __syncwarp();  // all of them are on their way before the first is waited for
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int r = 0; r < kGroups; ++r) {
        const uint4 &a = held.w[r][0][i], &c = held.w[r][1][i];
        mma(acc[r], {a.x, c.x, a.y, c.y}, {b[i].x, b[i].y});
        mma(acc[r], {a.z, c.z, a.w, c.w}, {b[i].z, b[i].w});
      }
    }
    k += step;
    if (k - lane % 4 * 8 >= g.k) break;
    held.load(g, weight, k);
  }
#pragma unroll
  for (int r = 0; r < kGroups; ++r) {
    parts[(warp * kGroups + r) * 32 + lane] = make_float4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
  }
  __syncthreads();
  if (warp >= kGroups) return;
  float4 sum = parts[threadIdx.x];
#pragma unroll 8
  for (int s = 1; s < warps; ++s) {
    const float4 v = parts[s * kGroups * 32 + threadIdx.x];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  const int64_t n = g.gated ? g.n / 2 : g.n;
  const int64_t col = (int64_t{blockIdx.x} * kGroups + warp) * (g.gated ? 8 : 16) + lane / 4, at = lane % 4 * 2;
  store_held(g, n, at, col, sum.x, sum.z), store_held(g, n, at + 1, col, sum.y, sum.w);
  if (g.gated) return;
  store_held(g, n, at, col + 8, sum.z, 0), store_held(g, n, at + 1, col + 8, sum.w, 0);
}

// Values of k per warp and run.
constexpr int kHeldRun = 128;

template <int kGroups, int kThreads>
Status launch_held(const Gemm& g, const void* weight, unsigned warps, device::Stream stream) {
  const auto blocks = static_cast<unsigned>(blocks_for(g.gated ? g.n / 2 : g.n, kGroups * (g.gated ? 8 : 16)));
  const size_t bytes = size_t{warps} * kGroups * 32 * sizeof(float4);
  return launch(stream, "gemm_held", {dim3(blocks), dim3(warps * 32), bytes}, held_kernel<kHeldRun, kGroups, kThreads>,
                g, static_cast<const bf*>(weight));
}

}  // namespace

bool held_fits(const Gemm& g) { return mma_fits(g) && g.rows <= kHeldRows && g.n * g.k <= kLargeWeight; }

// A warp per run, where the blocks are few or k is short; wide blocks would leave a multiprocessor room for one.
Status gemm_held(const Gemm& g, const void* weight, device::Stream stream) {
  const int64_t runs = blocks_for(g.k, kHeldRun);
  const bool many = blocks_for(g.n, 16) > 2 * int64_t{state(stream).multiprocessors};
  if (many && runs <= 8) return launch_held<2, 256>(g, weight, static_cast<unsigned>(runs), stream);
  if (many || runs <= 8) return launch_held<1, 256>(g, weight, static_cast<unsigned>(runs < 8 ? runs : 8), stream);
  return launch_held<1, 768>(g, weight, static_cast<unsigned>(runs <= 24 ? runs : 16), stream);
}

}  // namespace tern::cuda
