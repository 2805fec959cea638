// Products of up to eight rows, where waiting is what counts: a warp holds 16 rows of the weight times kRun values of k
// in registers, the first of them read before the launch has to wait for the one before it. A block's warps share the
// rows and deal k out among them; their sums meet in shared memory. Many small blocks, which take turns as they end:
// the memory stays busy and no tile is cut between blocks. Where warps have more than one run of k, the second one is
// kept in shared memory meanwhile.
#include <type_traits>

#include "cuda/gemm/epilogues/norm_epilogue.cuh"
#include "cuda/gemm/gemm.h"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"

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
struct ResidentWeight {
  static constexpr int kLoads = kRun / 32;
  uint4 w[kGroups][2][kLoads];
  // Calls take(r, h, i, from, there) for all of them.
  template <class Take>
  static __device__ __forceinline__ void each(const Gemm& g, const bf* weight, int64_t k, Take&& take) {
    const int64_t n = g.gated ? g.n / 2 : g.n;
    const int64_t row0 = int64_t{blockIdx.x} * kGroups * (g.gated ? 8 : 16) + (threadIdx.x & 31) / 4;
#pragma unroll
    for (int r = 0; r < kGroups; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t row = g.gated ? row0 + 8 * r : row0 + 16 * r + 8 * h;
        const bf* from = weight + (g.gated ? row + h * n : row) * g.w_row + k;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) take(r, h, i, from + 32 * i, row < n && k + 32 * i < g.k);
      }
    }
  }
  __device__ __forceinline__ void load(const Gemm& g, const bf* weight, int64_t k) {
    each(g, weight, k, [&](int r, int h, int i, const bf* from, bool there) {
      w[r][h][i] = there ? load_early(from) : make_uint4(0, 0, 0, 0);
    });
  }
};

// The same in shared memory, where a thread puts what it will read itself: nobody waits for anybody.
template <int kRun, int kGroups>
struct KeptWeight {
  static constexpr int kLoads = kRun / 32;
  uint4* own;
  static size_t bytes(size_t threads) { return threads * kGroups * 2 * kLoads * sizeof(uint4); }
  __device__ __forceinline__ uint4* place(int r, int h, int i) const {
    return own + ((r * 2 + h) * kLoads + i) * blockDim.x;
  }
  __device__ __forceinline__ void load(const Gemm& g, const bf* weight, int64_t k) const {
    ResidentWeight<kRun, kGroups>::each(g, weight, k, [&](int r, int h, int i, const bf* from, bool there) {
      copy_async(place(r, h, i), there ? from : weight, there ? 16 : 0);
    });
    copy_commit();
  }
};

// Brings the weights of blocks that find no room yet into the second-level cache. `together`: how many blocks find
// room at once. One warp.
template <int kRows>
__device__ __forceinline__ void bring_later(const Gemm& g, const bf* weight, int together) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  for (int64_t block = int64_t{blockIdx.x} + together; block < gridDim.x; block += together) {
    const int64_t lane = threadIdx.x & 31, row = block * kRows + lane;
    if (lane >= kRows || row >= g.n) continue;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(weight + row * g.w_row),
                 "r"(static_cast<int>(g.w_row * 2))
                 : "memory");
  }
#endif
}

// The first column of a lane in a group that its warp writes. Its tokens are lane % 4 * 2 and the next.
template <int kGroups>
__device__ __forceinline__ int64_t register_resident_column(const Gemm& g) {
  const int64_t group = int64_t{blockIdx.x} * kGroups + threadIdx.x / 32;
  return group * (g.gated ? 8 : 16) + (threadIdx.x & 31) / 4;
}

// A norm before the product: the scales of rows number `warp`, `warp` + warps and so on. Of the first one up to 64 sums
// of squares are on their way while the warp multiplies.
struct ResidentScale {
  float2 first;
  __device__ __forceinline__ explicit ResidentScale(float4*) {}
  __device__ __forceinline__ void begin(const NormBefore& b) {
    const int at = 2 * static_cast<int>(threadIdx.x & 31);
    first = make_float2(0, 0);
    if (at < b.parts) first = *reinterpret_cast<const float2*>(b.squares + threadIdx.x / 32 * b.parts + at);
  }
  __device__ __forceinline__ void end(const Gemm& g, float* scales) const {
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    for (int row = warp; row < g.rows; row += blockDim.x / 32) {
      const float* squares = g.before.squares + row * g.before.parts;
      float sum = row == warp ? first.x + first.y : 0.0f;
      for (int p = lane + (row == warp ? 64 : 0); p < g.before.parts; p += 32) sum += squares[p];
      sum = warp_sum(sum);
      if (lane == 0) scales[row] = norm_scale(g.before, sum, g.k);
    }
  }
};

// The same where no register is left: up to kKeptSquares sums of each row, a warp's row number `warp`, wait in shared
// memory, where a thread puts what it will read itself.
struct KeptScale {
  float4* own;
  __device__ __forceinline__ explicit KeptScale(float4* memory) : own(memory + threadIdx.x) {}
  __device__ __forceinline__ void begin(const NormBefore& b) const {
    const int at = 4 * static_cast<int>(threadIdx.x & 31);
    const bool there = at < b.parts;
    copy_async(own, there ? b.squares + threadIdx.x / 32 * b.parts + at : b.squares, there ? 16 : 0);
    copy_commit();
  }
  __device__ __forceinline__ void end(const Gemm& g, float* scales) const {
    const float4 v = *own;
    const float sum = warp_sum((v.x + v.y) + (v.z + v.w));
    if ((threadIdx.x & 31) == 0) scales[threadIdx.x / 32] = norm_scale(g.before, sum, g.k);
  }
};

// A lane's part of the tokens: token lane/4, the values of k that it has of the weight.
template <int kRun>
struct ResidentTokens {
  static constexpr int kLoads = kRun / 32;
  uint4 v[kLoads];
  // x: of that token.
  __device__ __forceinline__ void load(const Gemm& g, const bf* x, int64_t k) {
    const bool token = (threadIdx.x & 31) / 4 < g.rows;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      v[i] = token && k + 32 * i < g.k ? load_early(x + k + 32 * i) : make_uint4(0, 0, 0, 0);
    }
  }
};

template <int kRun, int kGroups, class Weight>
__device__ __forceinline__ void multiply_register_resident(float (&acc)[kGroups][4], const ResidentTokens<kRun>& x,
                                                           Weight&& weight) {
#pragma unroll
  for (int i = 0; i < kRun / 32; ++i) {
#pragma unroll
    for (int r = 0; r < kGroups; ++r) {
      const uint4 a = weight(r, 0, i), c = weight(r, 1, i);
      mma(acc[r], {a.x, c.x, a.y, c.y}, {x.v[i].x, x.v[i].y});
      mma(acc[r], {a.z, c.z, a.w, c.w}, {x.v[i].z, x.v[i].w});
    }
  }
}

// All runs of k of a warp, of which the weights of the first are on their way.
template <int kRun, int kGroups>
__device__ __forceinline__ void add_runs(float (&acc)[kGroups][4], ResidentWeight<kRun, kGroups>& held, const Gemm& g,
                                         const bf* weight, const bf* tokens, int64_t begin, int64_t step) {
  const int own = (threadIdx.x & 31) % 4 * 8;
  // Lanes of a warp differ in k by less than kRun, of which k is no multiple: all stay until the warp's last run.
  for (int64_t k = begin + own;;) {
    ResidentTokens<kRun> x;
    x.load(g, tokens, k);
    __syncwarp();  // all of them are on their way before the first is waited for
    multiply_register_resident(acc, x, [&](int r, int h, int i) { return held.w[r][h][i]; });
    k += step;
    if (k - own >= g.k) break;
    held.load(g, weight, k);
  }
}

// Whether a kernel does a part of a norm: that before the product, or also that behind it.
enum class Norms { kNone, kBefore, kBoth };
template <Norms kNorms>
using ScaleOf = std::conditional_t<kNorms == Norms::kBefore, KeptScale, ResidentScale>;

// The sums of a warp's group, whose parts are in shared memory.
template <int kGroups, Norms kNorms>
__device__ __forceinline__ void finish_held(const Gemm& g, const float4* parts, const float* scales,
                                            const NormQuad& norm, const float2& weights) {
  const int warps = blockDim.x / 32;
  float4 sum = parts[threadIdx.x];
#pragma unroll 8
  for (int s = 1; s < warps; ++s) {
    const float4 v = parts[s * kGroups * 32 + threadIdx.x];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  const int64_t n = g.gated ? g.n / 2 : g.n, col = register_resident_column<kGroups>(g), at = threadIdx.x % 4 * 2;
  if (kNorms != Norms::kNone && g.before.squares != nullptr) {
    if (at < g.rows) sum.x *= scales[at], sum.z *= scales[at];
    if (at + 1 < g.rows) sum.y *= scales[at + 1], sum.w *= scales[at + 1];
  }
  if (kNorms == Norms::kBoth && g.after.residual != nullptr) return norm.epilogue(g, at, col, weights, sum);
  store_register_resident(g, n, at, col, sum.x, sum.z), store_register_resident(g, n, at + 1, col, sum.y, sum.w);
  if (g.gated) return;
  store_register_resident(g, n, at, col + 8, sum.z, 0), store_register_resident(g, n, at + 1, col + 8, sum.w, 0);
}

// kKept: weights of the second run wait in shared memory as those of the first do in registers.
template <int kRun, int kGroups, bool kKept, Norms kNorms, int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads > 256 ? 1
                                            : kGroups == 1 ? 3
                                                           : 2)
    register_resident_kernel(const Gemm g, const bf* weight, int together) {
  extern __shared__ float4 parts[];  // [warps][kGroups][32]
  __shared__ float scales[kRegisterResidentRows];
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, warps = blockDim.x / 32;
  const int64_t begin = int64_t{warp} * kRun, step = int64_t{warps} * kRun;  // the same for all lanes
  const bf* const tokens = static_cast<const bf*>(g.x) + lane / 4 * g.x_row;
  ResidentWeight<kRun, kGroups> held;
  float acc[kGroups][4] = {};
  held.load(g, weight, begin + lane % 4 * 8);
  NormQuad norm;
  float2 norm_weights{};
  [[maybe_unused]] ScaleOf<kNorms> scale(parts + warps * kGroups * 32);
  const bool leaves = kNorms == Norms::kBoth && g.after.residual != nullptr && warp < kGroups;
  const auto scales_row = [&] { return kNorms != Norms::kNone && g.before.squares != nullptr && warp < g.rows; };
  if (leaves) bring_norm_weight(g.after, register_resident_column<kGroups>(g));
  const auto begin_norm = [&] {
    if (scales_row()) scale.begin(g.before);
    if (!leaves) return;
    const int64_t col = register_resident_column<kGroups>(g);
    norm_weights = make_float2(norm_weight(g.after, col), norm_weight(g.after, col + 8));
    norm.load(g, lane % 4 * 2, col);
  };
  if constexpr (kKept) {
    const int own = lane % 4 * 8;
    constexpr int kScales = kNorms == Norms::kBefore ? 32 : 0;  // KeptScale's of a warp
    const KeptWeight<kRun, kGroups> kept{reinterpret_cast<uint4*>(parts + warps * (kGroups * 32 + kScales)) +
                                         threadIdx.x};
    kept.load(g, weight, begin + step + own);
    if (warp == 0 && !g.gated) bring_later<16 * kGroups>(g, weight, together);
    bring_parameters(g);
    wait_for_previous();
    begin_norm();
    ResidentTokens<kRun> x, second;
    x.load(g, tokens, begin + own), second.load(g, tokens, begin + step + own);
    __syncwarp();
    multiply_register_resident(acc, x, [&](int r, int h, int i) { return held.w[r][h][i]; });
    copy_wait<0>();
    multiply_register_resident(acc, second, [&](int r, int h, int i) { return *kept.place(r, h, i); });
    for (int64_t k = begin + 2 * step; k < g.k; k += step) {
      held.load(g, weight, k + own);
      x.load(g, tokens, k + own);
      __syncwarp();
      multiply_register_resident(acc, x, [&](int r, int h, int i) { return held.w[r][h][i]; });
    }
  } else {
    bring_parameters(g);
    wait_for_previous();
    begin_norm();
    add_runs(acc, held, g, weight, tokens, begin, step);
  }
#pragma unroll
  for (int r = 0; r < kGroups; ++r) {
    parts[(warp * kGroups + r) * 32 + lane] = make_float4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
  }
  if (scales_row()) scale.end(g, scales);
  __syncthreads();
  if (warp < kGroups) finish_held<kGroups, kNorms>(g, parts, scales, norm, norm_weights);
}

template <int kGroups, bool kKept, int kThreads, Norms kNorms = Norms::kBoth>
Status launch_register_resident(const Gemm& g, const void* weight, unsigned warps, device::Stream stream) {
  const auto blocks = static_cast<unsigned>(blocks_for(g.gated ? g.n / 2 : g.n, kGroups * (g.gated ? 8 : 16)));
  size_t bytes = size_t{warps} * kGroups * 32 * sizeof(float4);
  if (kKept) bytes += KeptWeight<kResidentRun, kGroups>::bytes(warps * 32);
  const bool norm = g.after.residual != nullptr || g.before.squares != nullptr;
  if (norm && kNorms == Norms::kBefore) bytes += size_t{warps} * 32 * sizeof(float4);
  const auto kernel = norm ? register_resident_kernel<kResidentRun, kGroups, kKept, kNorms, kThreads>
                           : register_resident_kernel<kResidentRun, kGroups, kKept, Norms::kNone, kThreads>;
  constexpr KernelNames kNames = kKept
                                     ? KernelNames{"gemm_register_resident_long", "gemm_register_resident_long_normed"}
                                     : KernelNames{"gemm_register_resident", "gemm_register_resident_normed"};
  return launch(stream, kNames.of(g), {dim3(blocks), dim3(warps * 32), bytes}, kernel, g,
                static_cast<const bf*>(weight), kBlocksTogether * state(stream).multiprocessors);
}

}  // namespace

// A warp per run, where the blocks are few or k is short, but as many as there are groups, which write; wide blocks
// would leave a multiprocessor room for one, and keep a second run only where that is no loss.
Status gemm_register_resident(const Gemm& g, const void* weight, device::Stream stream) {
  const int64_t runs = blocks_for(g.k, kResidentRun);
  const bool many = many_resident_blocks(g, state(stream).multiprocessors);
  if (many && runs > 1 && runs <= 8)
    return launch_register_resident<2, false, 256>(g, weight, static_cast<unsigned>(runs), stream);
  if (runs <= 8) return launch_register_resident<1, false, 256>(g, weight, static_cast<unsigned>(runs), stream);
  if (many) return launch_register_resident<1, true, 256, Norms::kBefore>(g, weight, 8, stream);
  if (runs <= 24) return launch_register_resident<1, false, 768>(g, weight, static_cast<unsigned>(runs), stream);
  if (blocks_for(g.n, 16) <= state(stream).multiprocessors)
    return launch_register_resident<1, true, 512>(g, weight, 16, stream);
  return launch_register_resident<1, false, 768>(g, weight, 16, stream);
}

}  // namespace tern::cuda
