// Products with one weight per expert and many rows each: clusters of two blocks, which take neighbouring tiles of 128
// weight rows and the same tokens, up to 256 of them, and load those once for both. One warp of a block fills its ring
// through the copy engine, two warpgroups multiply; blocks stay and take one tile after the other, so that the ring is
// full again while results leave through shared memory.
#include <algorithm>
#include <type_traits>

#include "cuda/gemm_grouped.h"
#include "cuda/hopper_units.cuh"
#include "cuda/kernel_util.cuh"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma_wide.cuh"

namespace tern::cuda {
namespace {

constexpr int kRows = 128, kK = 64, kRow = kK * 2;  // bytes of a row in a stage
constexpr int kThreads = 384, kCluster = 2, kWarps = 8;
constexpr uint16_t kAll = (1 << kCluster) - 1;  // blocks of a cluster
constexpr int kPiece = 32;                      // tokens whose results leave together
constexpr int kStaging = kPiece * 20 * 4;       // bytes of a warp for these
constexpr int kMostGroups = 256;
constexpr int64_t kLeastRows = 128;  // per expert on average: below, reading the weights takes longer than the products

template <int kTokens_, int kGrain_, int kDepth_>
struct WideTile {
  // Tokens are multiplied in multiples of kGrain: the code has a loop for each.
  static constexpr int kTokens = kTokens_, kGrain = kGrain_, kDepth = kDepth_;
  static constexpr int kWeight = kRows * kK * 2, kStage = kWeight + kTokens * kK * 2;
  static constexpr size_t kBytes = 1024 + kStage * kDepth + kWarps * kStaging;
};

template <class Tile>
struct WideShared {
  uint64_t full[Tile::kDepth], empty[Tile::kDepth];
  int offsets[kMostGroups + 1];
  int16_t each[kMostGroups];   // rows of a tile, 0: this expert has none
  int16_t order[kMostGroups];  // experts by falling rows of a tile
  int first[kMostGroups + 1];  // row tiles of the experts before, in that order
};

// Tokens of one expert and two weight tiles.
struct WideItem {
  int group, row0, count, wide;  // wide: count rounded up to what wgmma takes
  int tile;                      // of the weight, the cluster's first
};

struct WideGrid {
  int pairs;  // of weight tiles
};

template <class Tile>
__device__ __forceinline__ int row_tiles(int rows) {
  return (rows + Tile::kTokens - 1) / Tile::kTokens;
}

// Experts in the order in which they are taken: the largest tiles first. All threads.
template <class Tile>
__device__ void order_experts(WideShared<Tile>& sh, const Gemm& g) {
  const int threads = static_cast<int>(blockDim.x);
  for (int e = static_cast<int>(threadIdx.x); e <= g.groups; e += threads) sh.offsets[e] = g.offsets[e];
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < g.groups; e += threads) {
    const int rows = sh.offsets[e + 1] - sh.offsets[e], tiles = max(1, row_tiles<Tile>(rows));
    sh.each[e] = static_cast<int16_t>(((rows + tiles - 1) / tiles + Tile::kGrain - 1) / Tile::kGrain * Tile::kGrain);
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < g.groups; e += threads) {
    const int mine = sh.each[e];
    int before = 0;
    for (int o = 0; o < g.groups; ++o) before += sh.each[o] > mine || (sh.each[o] == mine && o < e) ? 1 : 0;
    sh.order[before] = static_cast<int16_t>(e);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  int before = 0;
  for (int i0 = 0; i0 <= g.groups; i0 += 32) {
    const int i = i0 + static_cast<int>(threadIdx.x), e = i < g.groups ? sh.order[i] : 0;
    const int tiles = i < g.groups ? row_tiles<Tile>(sh.offsets[e + 1] - sh.offsets[e]) : 0;
    int sum = tiles;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, d);
      if (static_cast<int>(threadIdx.x) >= d) sum += other;
    }
    if (i <= g.groups) sh.first[i] = before + sum - tiles;
    before += __shfl_sync(0xffffffffu, sum, 31);
  }
}

// What a cluster takes in its round number `round`. Expert by expert, weight tile by weight tile: who shares a weight
// runs at the same time. Every other round goes backwards, so that nobody gets the larger one each time. false: no
// more.
template <class Tile>
__device__ __forceinline__ bool find_item(const WideShared<Tile>& sh, const Gemm& g, const WideGrid& grid, int round,
                                          WideItem* item) {
  const int clusters = static_cast<int>(gridDim.x) / kCluster, mine = static_cast<int>(blockIdx.x) / kCluster;
  const int index = round * clusters + (round % 2 == 0 ? mine : clusters - 1 - mine), all = sh.first[g.groups];
  if (index >= all * grid.pairs) return false;
  const int place = index / grid.pairs;
  int low = 0, high = g.groups;  // first[low] <= place < first[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (sh.first[middle] <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int tiles = sh.first[low + 1] - sh.first[low], local = index - sh.first[low] * grid.pairs, e = sh.order[low];
  item->group = e, item->row0 = sh.offsets[e] + local % tiles * sh.each[e];
  item->count = max(0, min(static_cast<int>(sh.each[e]), sh.offsets[e + 1] - item->row0));
  item->wide = max(1, (item->count + Tile::kGrain - 1) / Tile::kGrain) * Tile::kGrain;
  item->tile = local / tiles * kCluster;
  return true;
}

struct WideMaps {
  CUtensorMap weight, x32, x16;  // boxes of 32 and of 16 tokens
};

struct RingPlace {
  int s = 0;
  uint32_t phase = 0;
  template <class Tile>
  __device__ __forceinline__ void next() {
    if (++s == Tile::kDepth) s = 0, phase ^= 1;
  }
};

// Stages of all tiles of this block; it loads every other box of the tokens, for both blocks.
template <class Tile>
__device__ __forceinline__ void fill_wide(WideShared<Tile>& sh, char* ring, const WideMaps& maps, const char* base,
                                          const Gemm& g, const WeightTable<kMostGroups>& table, const WideGrid& grid) {
  const int rank = hopper::cluster_rank(), steps = static_cast<int>(g.k / kK);
  RingPlace at;
  WideItem item;
  for (int round = 0; find_item(sh, g, grid, round, &item); ++round) {
    const auto plane = static_cast<int>((static_cast<const char*>(table.w[item.group]) - base) / 128);
    const int unit = (item.tile + rank) * (kRows / 16), large = item.wide / 32;
    const bool small = item.wide % 32 != 0 && large % kCluster == rank;
    for (int k = 0; k < steps; ++k) {
      uint64_t* const full = sh.full + at.s;
      char* const to = ring + at.s * Tile::kStage;
      char* const x = to + Tile::kWeight;
      hopper::barrier_wait(sh.empty + at.s, at.phase ^ 1);
      hopper::barrier_expect(full, static_cast<uint32_t>(Tile::kWeight + item.wide * kRow));
      hopper::load_units(to, &maps.weight, full, unit, plane + k, hopper::kEvictNormal);
      for (int b = rank; b < large; b += kCluster) {
        hopper::load_box_all(x + b * 32 * kRow, &maps.x32, full, k * kK, item.row0 + b * 32, kAll, hopper::kEvictLast);
      }
      if (small) {
        hopper::load_box_all(x + large * 32 * kRow, &maps.x16, full, k * kK, item.row0 + large * 32, kAll,
                             hopper::kEvictLast);
      }
      at.template next<Tile>();
    }
  }
}

// The stage was read: its place in both blocks' rings is free as far as this warp is concerned.
template <class Tile>
__device__ __forceinline__ void release(WideShared<Tile>& sh, int s) {
  const int lane = threadIdx.x & 31;
  if (lane < kCluster) hopper::barrier_arrive_at(sh.empty + s, lane);
}

// A warp's results, 16 columns or 8 with a gate, kPiece tokens at a time, turned around in its own shared memory.
template <int kN, bool kGated>
__device__ __forceinline__ void leave(const Gemm& g, const WideItem& item, int col, const float (&acc)[kN / 2],
                                      char* staging) {
  using Out = std::conditional_t<kGated, bf, float>;
  constexpr int kColumns = kGated ? 8 : 16, kPitch = kGated ? 16 : 20, kWords = kGated ? 1 : 4;  // words of 16 bytes
  const int lane = threadIdx.x & 31;
  Out* const to = reinterpret_cast<Out*>(staging) + lane % 4 * 2 * kPitch + lane / 4;
  const Out* const from = reinterpret_cast<const Out*>(staging) + lane / kWords * kPitch + lane % kWords * 4;
  const bool inside = col < (kGated ? g.n / 2 : g.n);
  Out* const out = static_cast<Out*>(g.out) + (item.row0 + lane / kWords) * g.out_row + col + lane % kWords * 4;
  static_assert(kColumns * sizeof(Out) == 16 * kWords);
#pragma unroll
  for (int p = 0; p < (kN + kPiece - 1) / kPiece; ++p) {
    if (p * kPiece >= item.count) continue;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPiece / 8; ++i) {
      const int j = p * (kPiece / 8) + i;
      if (j >= kN / 8) continue;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const float a = acc[4 * j + t], b = acc[4 * j + 2 + t];
        if constexpr (kGated) {
          to[(i * 8 + t) * kPitch] = from_float<Out>(silu(a) * b);
        } else {
          to[(i * 8 + t) * kPitch] = a, to[(i * 8 + t) * kPitch + 8] = b;
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int token = i * (32 / kWords);
      if (inside && p * kPiece + token + lane / kWords < item.count) {
        *reinterpret_cast<uint4*>(out + (p * kPiece + token) * g.out_row) =
            *reinterpret_cast<const uint4*>(from + token * kPitch);
      }
    }
  }
}

template <int kN, bool kGated, class Tile>
__device__ __forceinline__ void multiply_wide(WideShared<Tile>& sh, const Gemm& g, const WideItem& item,
                                              const char* ring, char* staging, RingPlace& at) {
  const int half = static_cast<int>(threadIdx.x) / 128 - 1, steps = static_cast<int>(g.k / kK);
  // Not because of its value: else the registers of all loops would live for as long as the kernel.
  float acc[kN / 2] = {};
  int before = 0;
  for (int k = 0; k < steps; ++k) {
    hopper::barrier_wait(sh.full + at.s, at.phase);
    const uint32_t stage = hopper::shared_address(ring) + at.s * Tile::kStage;
    const uint64_t a = hopper::tile_descriptor(stage + half * (64 * kK * 2));
    const uint64_t b = hopper::tile_descriptor(stage + Tile::kWeight);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kK / 16; ++i) hopper::Wgmma<kN>::run(acc, a + 2 * i, b + 2 * i, k + i > 0);
    hopper::wgmma_commit();
    if (k > 0) {
      hopper::wgmma_wait<1>();
      release(sh, before);
    }
    before = at.s;
    at.template next<Tile>();
  }
  hopper::wgmma_wait<0>();
  release(sh, before);
  const int tile = item.tile + hopper::cluster_rank();
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  leave<kN, kGated>(g, item, tile * (kGated ? kRows / 2 : kRows) + warp * (kGated ? 8 : 16), acc,
                    staging + warp * kStaging);
}

template <bool kGated, class Tile>
__device__ __forceinline__ void multiply_item(WideShared<Tile>& sh, const Gemm& g, const WideItem& item,
                                              const char* ring, char* staging, RingPlace& at) {
  constexpr int kGrain = Tile::kGrain;
  static_assert(Tile::kTokens == 16 * kGrain);
#define TERN_WIDE(n) \
  case n:            \
    return multiply_wide<n * kGrain, kGated>(sh, g, item, ring, staging, at)
  switch (item.wide / kGrain) {
    TERN_WIDE(1);
    TERN_WIDE(2);
    TERN_WIDE(3);
    TERN_WIDE(4);
    TERN_WIDE(5);
    TERN_WIDE(6);
    TERN_WIDE(7);
    TERN_WIDE(8);
    TERN_WIDE(9);
    TERN_WIDE(10);
    TERN_WIDE(11);
    TERN_WIDE(12);
    TERN_WIDE(13);
    TERN_WIDE(14);
    TERN_WIDE(15);
    TERN_WIDE(16);
  }
#undef TERN_WIDE
}

template <class Tile, bool kGated>
__global__ void __launch_bounds__(kThreads, 1)
    wide_kernel(const __grid_constant__ WideMaps maps, const char* base, const Gemm g,
                const __grid_constant__ WeightTable<kMostGroups> table, const WideGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ WideShared<Tile> sh;
  char* const ring = memory + (1024 - hopper::shared_address(memory) % 1024) % 1024;
  char* const staging = ring + Tile::kStage * Tile::kDepth;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kDepth; ++s) {
      hopper::barrier_init(sh.full + s, 1);
      hopper::barrier_init(sh.empty + s, kWarps * kCluster);
    }
    hopper::barrier_init_done();
    hopper::prefetch_map(&maps.weight), hopper::prefetch_map(&maps.x32), hopper::prefetch_map(&maps.x16);
  }
  wait_for_previous();
  let_next_start();
  order_experts(sh, g);
  __syncthreads();
  hopper::cluster_sync();
  if (threadIdx.x < 128) {
    hopper::registers_down<40>();
    if (threadIdx.x == 0) fill_wide(sh, ring, maps, base, g, table, grid);
  } else {
    hopper::registers_up<232>();
    RingPlace at;
    WideItem item;
    for (int round = 0; find_item(sh, g, grid, round, &item); ++round) {
      multiply_item<kGated>(sh, g, item, ring, staging, at);
    }
  }
  __syncwarp();
  hopper::cluster_sync();  // nobody leaves while others write into its ring
}

template <class Tile, bool kGated>
Status launch_wide(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  WeightTable<kMostGroups> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const auto* base = static_cast<const char*>(*std::min_element(weights, weights + g.groups));
  WideMaps maps;
  TERN_RETURN_IF_ERROR(tensor_map_units(base, g.n, g.w_row, g.gated, kRows / 16, 1, &maps.weight));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, 32, &maps.x32));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, 16, &maps.x16));
  const auto kernel = wide_kernel<Tile, kGated>;
  TERN_RETURN_IF_ERROR(allow_shared(name, kernel, Tile::kBytes));
  const WideGrid grid{static_cast<int>(blocks_for(g.n, kRows * kCluster))};
  const auto blocks = static_cast<unsigned>(state(stream).multiprocessors / kCluster * kCluster);
  return launch(stream, name, {blocks, kThreads, Tile::kBytes, kCluster}, kernel, maps, base, g, table, grid);
}

}  // namespace

bool grouped_wide_fits(const Gemm& g, device::Stream stream) {
  const int64_t wide = g.gated ? g.n / 2 : g.n;
  return g.rows > kLeastRows * g.groups && g.bias == nullptr && g.gated == g.out_bf16 && g.groups <= kMostGroups &&
         g.n % 16 == 0 && g.k % kK == 0 && wide % 8 == 0 && reinterpret_cast<uintptr_t>(g.out) % 16 == 0 &&
         g.out_row % 8 == 0 && (g.rows / 64 + g.groups) * blocks_for(g.n, 128) < (1 << 30) &&
         state(stream).multiprocessors >= kCluster;
}

Status gemm_grouped_wide(const Gemm& g, const void* const* weights, device::Stream stream) {
  using Tile = WideTile<256, 16, 4>;
  constexpr const char* kName = "gemm_hopper_grouped_wide";
  return g.gated ? launch_wide<Tile, true>(g, weights, kName, stream)
                 : launch_wide<Tile, false>(g, weights, kName, stream);
}

}  // namespace tern::cuda
