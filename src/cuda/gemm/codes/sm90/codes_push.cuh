// Codes of small weights on Hopper, up to 64 rows: gemm_splitk_dsmem (gemm/sm90), whose blocks send their parts of a
// tile from registers straight to the blocks that add them up, with the products of codes_wgmma.cuh. With a gate a
// warp's 16 rows are 8 of gate and the 8 of up that belong to them.
#pragma once

#include <algorithm>

#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/gemm/codes/sm90/codes_wgmma.cuh"
#include "cuda/gemm/sm90/gemm_splitk_dsmem_epilogue.cuh"

namespace tern::cuda {

template <CodeKind kKind_, int kSpan_, int kTokens_>
struct CodesPushTile {
  static constexpr CodeKind kKind = kKind_;
  static constexpr int kSpan = kSpan_, kTokens = kTokens_, kRows = 64, kBlocks = kTokens == 64 ? 2 : 3,
                       kStripes = kRows / kStripe;
  static constexpr int kWorkers = 2 * kRows, kThreads = kWorkers + 64;  // a warp copies, and one makes scales
  static constexpr int kUnit = kKind == CodeKind::kInt4 ? 512 : 1024, kCodes = kStripes * 2 * kUnit;
  static constexpr int kScales = kSpan == 0 ? 0 : 1024, kWeight = kCodes + kScales;
  static constexpr int kBox = kTokens * 128, kX = 2 * kBox;  // of 64 columns of tokens, of a stage
  static constexpr int kLanding = kTokens * kRows * 4, kQuads = kTokens / 8;
  static constexpr int kZone = (kLanding + kWeight - 1) / kWeight;  // stages of weights that it lies over
  static constexpr int kLeastDepth = kZone + 1, kMostDepth = 12;
  static constexpr int bytes(int stages) { return 1024 + stages * (kWeight + kX); }
  static constexpr int room(int blocks) { return 228 * 1024 / blocks - 2048; }
  static_assert(bytes(kLeastDepth) <= room(2));
  using Sums = float[kTokens / 2];
};

template <class T>
struct CodesPushRing : SplitKRing<T> {
  using SplitKRing<T>::SplitKRing;
  __device__ char* codes(int s) const { return this->weight(s); }
  __device__ char* scales(int s) const { return this->weight(s) + T::kCodes; }
};

struct CodesPushGrid : SplitKGrid {
  int bytes = 0, groups = 0;  // of a stage; scales of a stripe in it
};

// Codes and scales of stage number k; of a gate those of gate and of up, two stripes each.
template <class T>
__device__ __forceinline__ void copy_push(const Gemm& g, const CodesPushGrid& grid, const CodesPushRing<T>& ring,
                                          const CodesMaps& maps, int tile, int s, int k) {
  const int box = g.gated ? T::kStripes / 2 : T::kStripes;
  hopper::barrier_expect(ring.full + s, static_cast<uint32_t>(grid.bytes));
  for (int i = 0; i < T::kStripes; i += box) {
    const int stripe = tile * box + (i > 0 ? static_cast<int>(g.n) / (2 * kStripe) : 0);
    hopper::load_box(ring.codes(s) + i * 2 * T::kUnit, &maps.codes, ring.full + s, 0, k * (2 * T::kUnit / 512), stripe,
                     hopper::kEvictFirst);
    if constexpr (T::kSpan > 0) {
      hopper::load_box(ring.scales(s) + (i > 0 ? T::kScales / 2 : 0), &maps.scales, ring.full + s, 0, k * grid.groups,
                       stripe, hopper::kEvictFirst);
    }
  }
}

// As fill_push() there. One warp.
template <class T>
__device__ void fill_codes_push(const Gemm& g, const CodesPushGrid& grid, const CodesPushRing<T>& ring,
                                const SplitKWork& work, const CodesMaps& maps) {
  const int steps = work.steps, ahead = min(steps, ring.depth), enough = ring.last_use(steps) + 2;
  const bool copies = threadIdx.x % 32 == 0;
  const auto tokens = [&](int s, int k) {
    for (int u = 0; u < 2; ++u)
      hopper::load_box(ring.x(s) + u * T::kBox, &maps.x, ring.full + s, k * kCodesStep + 64 * u, 0, hopper::kEvictLast);
  };
  for (int i = 0, s = ring.begin; i < ahead && copies; ++i, s = ring.next(s))
    copy_push<T>(g, grid, ring, maps, work.tile, s, work.first + i);
  wait_for_previous();  // weights are never written by a step, x is
  int s = ring.begin;
  for (int i = 0; i < ahead; ++i, s = ring.next(s)) {
    if (copies) tokens(s, work.first + i);
  }
  if (enough <= ahead) splitk_dsmem_arrive();
  for (int i = ahead; i < steps; ++i, s = ring.next(s)) {
    hopper::barrier_wait(ring.empty + s, static_cast<uint32_t>(i / ring.depth - 1) & 1);
    if (copies) copy_push<T>(g, grid, ring, maps, work.tile, s, work.first + i), tokens(s, work.first + i);
    if (i + 1 == enough) splitk_dsmem_arrive();
  }
}

// The warp's stripes in a stage, and which of the weight they are.
template <class T>
struct PushRows {
  WarpStripes in;
  int first, second;
  __device__ PushRows(const Gemm& g, int tile) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    in = {g.gated ? warp / 2 : warp, g.gated ? T::kStripes / 2 + warp / 2 : warp, g.gated, warp % 2 == 1};
    first = tile * (g.gated ? T::kStripes / 2 : T::kStripes) + in.first;
    second = g.gated ? static_cast<int>(g.n) / (2 * kStripe) + first : first;
  }
  __device__ int2 scales(const CodesPushGrid& grid) const {
    const int pitch = grid.groups * 64;
    return in.pairs ? make_int2(in.first * pitch, T::kScales / 2 + in.first * pitch)
                    : make_int2(in.first * pitch, in.first * pitch);
  }
  // Of whole rows.
  __device__ float2 row_scales(const Gemm& g, const char* w) const {
    const CodeLayout& c = g.codes;
    const int r = static_cast<int>(threadIdx.x & 31) / 4, upper = in.pairs && in.upper ? 8 : 0;
    if (T::kSpan > 0 || second >= c.stripes()) return make_float2(1.0f, 1.0f);
    return make_float2(group_of(c, w + first * c.stripe_bytes(), 0)[r + upper],
                       group_of(c, w + second * c.stripe_bytes(), 0)[r + (in.pairs ? upper : 8)]);
  }
};

template <class T>
__device__ __forceinline__ void multiply_push(const Gemm& g, const CodesPushGrid& grid, const CodesPushRing<T>& ring,
                                              const PushRows<T>& rows, int steps, float2 scale, typename T::Sums& acc) {
  const int last_use = ring.last_use(steps), lane = threadIdx.x & 31;
  if (last_use < 0) splitk_dsmem_arrive();
  const auto done = [&](int i, int s) {
    if (lane == 0) hopper::barrier_arrive(ring.empty + s);
    if (i == last_use) splitk_dsmem_arrive();
  };
  if constexpr (T::kSpan == 0) {
    multiply_rows<T>(ring, rows.in, steps, acc, done);
#pragma unroll
    for (int j = 0; j < T::kTokens / 2; ++j) acc[j] *= j % 4 < 2 ? scale.x : scale.y;
  } else {
    multiply_spans<T>(g.codes, ring, rows.in, rows.scales(grid), steps, acc, done);
  }
}

template <class T, int kSplit>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    codes_push_kernel(const __grid_constant__ CodesMaps maps, const char* w, const Gemm g, const CodesPushGrid grid) {
  constexpr int kScaled = T::kWorkers + 32;  // threads that meet where scales are there
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * T::kMostDepth + 1];
  __shared__ __align__(8) float scales[T::kTokens];
  let_next_start();
  const int rank = hopper::cluster_rank(), first = rank * grid.k_tiles / kSplit;
  const SplitKWork work{static_cast<int>(blockIdx.x) / kSplit, rank, first, (rank + 1) * grid.k_tiles / kSplit - first};
  const CodesPushRing<T> ring(memory, barriers, grid, work.steps);
  if (threadIdx.x == 0) {
    for (int s = 0; s < ring.depth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, T::kWorkers / 32);
    }
    hopper::barrier_init(ring.landed, 1);
    hopper::barrier_init_done();
    hopper::barrier_expect(ring.landed, T::kLanding);
  }
  __syncthreads();
  if (threadIdx.x >= kScaled) {
    splitk_dsmem_arrive();
    if (g.before.squares != nullptr) {
      bring_parameters(g);
      wait_for_previous();
      splitk_dsmem_scales<T, kSplit>(g, rank, scales);
      hopper::group_arrive(1, kScaled);
    }
    return splitk_dsmem_wait();
  }
  if (threadIdx.x >= T::kWorkers) {
    fill_codes_push<T>(g, grid, ring, work, maps);
    return splitk_dsmem_wait();
  }
  if (threadIdx.x < 32) bring_parameters(g, grid);
  const PushRows<T> rows(g, work.tile);
  const float2 scale = rows.row_scales(g, w);
  SplitKEpilogue<T, kSplit> epilogue(g, work);
  if (g.after.residual != nullptr) wait_for_previous();
  epilogue.load(g);
  typename T::Sums acc;
  multiply_push<T>(g, grid, ring, rows, work.steps, scale, acc);
  splitk_dsmem_wait();
  send_part<T, kSplit>(ring, rank, acc);
  if (g.before.squares != nullptr) hopper::group_sync(1, kScaled);
  // Nobody waits at the end: a block stays until all parts of its share have arrived, so those who send may leave.
  epilogue.finish(g, ring, scales);
}

template <class T, int kSplit>
Status launch_codes_push(const Gemm& g, const void* weight, const KernelNames& names, device::Stream stream) {
  const CodeLayout& c = g.codes;
  const int box = token_box(g.rows, T::kTokens), stripes = g.gated ? T::kStripes / 2 : T::kStripes;
  const int64_t tiles = blocks_for(g.n, T::kRows);
  CodesPushGrid grid{};
  grid.k_tiles = static_cast<int>(blocks_for(g.k, kCodesStep)), grid.x_bytes = T::kX;
  grid.groups = T::kSpan == 0 ? 0 : kCodesStep / c.group;
  grid.bytes = T::kStripes * (2 * T::kUnit + grid.groups * 64) + 2 * box * 128;
  // As many stages as there is room for beside the other blocks, two at least; no more than a block's steps.
  const int64_t blocks = std::clamp<int64_t>(blocks_for(tiles * kSplit, state(stream).multiprocessors), 2, T::kBlocks);
  const int most = std::min({(T::room(static_cast<int>(blocks)) - 1024) / (T::kWeight + T::kX),
                             static_cast<int>(blocks_for(grid.k_tiles, kSplit)), T::kMostDepth});
  grid.depth = std::max(T::kLeastDepth, most);
  CodesMaps maps{};
  TERN_RETURN_IF_ERROR(codes_maps<T>(g, weight, stripes, grid.groups, box, &maps));
  return launch(
      stream, names.of(g),
      {dim3(static_cast<unsigned>(tiles) * kSplit), T::kThreads, static_cast<size_t>(T::bytes(grid.depth)), kSplit},
      codes_push_kernel<T, kSplit>, maps, static_cast<const char*>(weight), g, grid);
}

template <class T>
Status launch_codes_push(const Gemm& g, const void* weight, int split, const KernelNames& names,
                         device::Stream stream) {
  if (split == 2) return launch_codes_push<T, 2>(g, weight, names, stream);
  return split == 4 ? launch_codes_push<T, 4>(g, weight, names, stream)
                    : launch_codes_push<T, 8>(g, weight, names, stream);
}

template <CodeKind kKind, int kSpan>
Status launch_codes_push(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream) {
  if (tile.tokens == 16)
    return launch_codes_push<CodesPushTile<kKind, kSpan, 16>>(g, weight, tile.split,
                                                              {"codes_push_16", "codes_push_16_normed"}, stream);
  if (tile.tokens == 32)
    return launch_codes_push<CodesPushTile<kKind, kSpan, 32>>(g, weight, tile.split,
                                                              {"codes_push_32", "codes_push_32_normed"}, stream);
  return launch_codes_push<CodesPushTile<kKind, kSpan, 64>>(g, weight, tile.split,
                                                            {"codes_push_64", "codes_push_64_normed"}, stream);
}

}  // namespace tern::cuda
