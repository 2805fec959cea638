// Products with one weight per expert and more than a few rows each. A block takes 256 rows of the weight and up to 160
// tokens of one expert, as many weights as it can hold for as few reads of the tokens: what passes from the
// second-level cache to the multiprocessors is the limit. One warp fills the ring through the copy engine, two
// warpgroups multiply; blocks stay and take one tile after the other, so that the ring is full again while results
// leave through shared memory. Where experts have many rows, two blocks share what they read of the weight, each with
// tokens of its own.
#include <algorithm>

#include "cuda/gemm_grouped.h"
#include "cuda/gemm_leave.cuh"
#include "cuda/hopper_units.cuh"
#include "cuda/kernel_util.cuh"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"

namespace tern::cuda {
namespace {

constexpr int kRows = 256, kK = 64, kRow = kK * 2;  // bytes of a row in a stage
constexpr int kThreads = 384, kWarps = 8;
constexpr int kGrain = 8;  // tokens are multiplied in multiples of this: the code has a loop for each
constexpr int kBox = 16;   // and are loaded in multiples of this
constexpr int kMostGroups = 256;
constexpr int64_t kSharedRows = 72;  // per expert on average: above, pairs of blocks share the weight

template <int kTokens_, int kDepth_, int kCluster_>
struct WideTile {
  static constexpr int kTokens = kTokens_, kDepth = kDepth_, kCluster = kCluster_;
  static constexpr int kWeight = kRows * kRow, kStage = kWeight + kTokens * kRow;
  static constexpr size_t kBytes = 1024 + kStage * kDepth + kWarps * kStaging;
};

template <class Tile>
struct WideShared {
  uint64_t full[Tile::kDepth], empty[Tile::kDepth];
  int offsets[kMostGroups + 1];
  int16_t each[kMostGroups];   // rows of a block's tile, 0: this expert has none
  int16_t order[kMostGroups];  // experts by falling rows of a tile
  int first[kMostGroups + 1];  // row tiles (of clusters) of the experts before, in that order
};

// Tokens of one expert and a tile of its weight.
struct WideItem {
  int group, row0, count, tile;
  int wide;  // tokens that are multiplied, the same in both blocks of a cluster
};

struct WideGrid {
  int tiles;             // of one weight
  bool settled = false;  // the offsets were there before the kernel before this one began to write
};

template <class Tile>
__device__ __forceinline__ int row_tiles(int rows) {
  constexpr int kEach = Tile::kTokens * Tile::kCluster;
  return (rows + kEach - 1) / kEach;
}

// Experts in the order in which they are taken: the largest tiles first. All threads.
template <class Tile>
__device__ void order_experts(WideShared<Tile>& sh, const Gemm& g) {
  const int threads = static_cast<int>(blockDim.x);
  for (int e = static_cast<int>(threadIdx.x); e <= g.groups; e += threads) sh.offsets[e] = g.offsets[e];
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < g.groups; e += threads) {
    const int rows = sh.offsets[e + 1] - sh.offsets[e], parts = max(1, row_tiles<Tile>(rows)) * Tile::kCluster;
    sh.each[e] = static_cast<int16_t>(((rows + parts - 1) / parts + kGrain - 1) / kGrain * kGrain);
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
  constexpr int kCluster = Tile::kCluster;
  const int clusters = static_cast<int>(gridDim.x) / kCluster, mine = static_cast<int>(blockIdx.x) / kCluster;
  const int index = round * clusters + (round % 2 == 0 ? mine : clusters - 1 - mine), all = sh.first[g.groups];
  if (index >= all * grid.tiles) return false;
  const int place = index / grid.tiles;
  int low = 0, high = g.groups;  // first[low] <= place < first[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (sh.first[middle] <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int tiles = sh.first[low + 1] - sh.first[low], local = index - sh.first[low] * grid.tiles, e = sh.order[low];
  const int rank = kCluster == 1 ? 0 : static_cast<int>(blockIdx.x) % kCluster;
  item->group = e, item->wide = sh.each[e];
  item->row0 = sh.offsets[e] + (local % tiles * kCluster + rank) * item->wide;
  item->count = max(0, min(item->wide, sh.offsets[e + 1] - item->row0));
  item->tile = local / tiles;
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

// Stages of all tiles of this block: its share of the weight for the whole cluster, tokens for itself. Of offsets that
// are settled the first stages' weights are read before the launch before has ended.
template <class Tile>
__device__ __forceinline__ void fill_wide(WideShared<Tile>& sh, char* ring, const WideMaps& maps, const char* base,
                                          const Gemm& g, const WeightTable<kMostGroups>& table, const WideGrid& grid) {
  constexpr int kCluster = Tile::kCluster, kUnits = kRows / 16 / kCluster;
  const int rank = static_cast<int>(blockIdx.x) % kCluster, steps = static_cast<int>(g.k / kK);
  WideItem item{};
  const auto plane_of = [&] { return static_cast<int>((static_cast<const char*>(table.w[item.group]) - base) / 128); };
  const auto boxes = [&] { return (item.wide + kBox - 1) / kBox; };
  const auto load_weight = [&](int s, int plane) {
    uint64_t* const full = sh.full + s;
    char* const to = ring + s * Tile::kStage + rank * (Tile::kWeight / kCluster);
    const int unit = item.tile * (kRows / 16) + rank * kUnits;
    hopper::barrier_expect(full, static_cast<uint32_t>(Tile::kWeight + boxes() * kBox * kRow));
    if constexpr (kCluster == 1) {
      hopper::load_units(to, &maps.weight, full, unit, plane, hopper::kEvictNormal);
    } else {
      hopper::load_units_all(to, &maps.weight, full, unit, plane, (1 << kCluster) - 1, hopper::kEvictNormal);
    }
  };
  const auto load_tokens = [&](int s, int k) {
    char* const to = ring + s * Tile::kStage + Tile::kWeight;
    const int all = boxes(), pairs = all / 2;
    for (int b = 0; b < pairs; ++b) {
      hopper::load_box(to + b * 2 * kBox * kRow, &maps.x32, sh.full + s, k * kK, item.row0 + b * 2 * kBox,
                       hopper::kEvictNormal);
    }
    if (all % 2 == 0) return;
    hopper::load_box(to + pairs * 2 * kBox * kRow, &maps.x16, sh.full + s, k * kK, item.row0 + pairs * 2 * kBox,
                     hopper::kEvictNormal);
  };
  RingPlace at;
  int ahead = 0;
  if (grid.settled && find_item(sh, g, grid, 0, &item)) {
    for (; ahead < min(steps, Tile::kDepth); ++ahead) load_weight(ahead, plane_of() + ahead);
  }
  wait_for_previous();
  for (int round = 0; find_item(sh, g, grid, round, &item); ++round) {
    const int plane = plane_of();
    for (int k = 0; k < steps; ++k) {
      if (round > 0 || k >= ahead) {
        hopper::barrier_wait(sh.empty + at.s, at.phase ^ 1);
        load_weight(at.s, plane + k);
      }
      load_tokens(at.s, k);
      at.template next<Tile>();
    }
  }
}

// The stage was read: its place in both blocks' rings is free as far as this warp is concerned.
template <class Tile>
__device__ __forceinline__ void release(WideShared<Tile>& sh, int s) {
  const int lane = threadIdx.x & 31;
  if constexpr (Tile::kCluster == 1) {
    if (lane == 0) hopper::barrier_arrive(sh.empty + s);
  } else {
    if (lane < Tile::kCluster) hopper::barrier_arrive_at(sh.empty + s, lane);
  }
}

// A warpgroup's 128 rows of the weight, in two halves.
template <int kN, class To, class Tile>
__device__ __forceinline__ void multiply_wide(WideShared<Tile>& sh, const Gemm& g, const WideItem& item,
                                              const char* ring, char* staging, RingPlace& at) {
  const int half = static_cast<int>(threadIdx.x) / 128 - 1, steps = static_cast<int>(g.k / kK);
  // Not because of its value: else the registers of all loops would live for as long as the kernel.
  float acc[2][kN / 2] = {};
  int before = 0;
  for (int k = 0; k < steps; ++k) {
    hopper::barrier_wait(sh.full + at.s, at.phase);
    const uint32_t stage = hopper::shared_address(ring) + at.s * Tile::kStage;
    const uint64_t a = hopper::tile_descriptor(stage + half * (128 * kRow));
    const uint64_t b = hopper::tile_descriptor(stage + Tile::kWeight);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kK / 16; ++i) {
      hopper::Wgmma<kN>::run(acc[0], a + 2 * i, b + 2 * i, k + i > 0);
      hopper::Wgmma<kN>::run(acc[1], a + 2 * i + 64 * kRow / 16, b + 2 * i, k + i > 0);
    }
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
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  char* const mine = staging + (half * 4 + warp) * kStaging;
  const int unit = item.tile * (kRows / 16) + half * 8 + warp;
  leave<kN, To>(g, item.row0, item.count, unit * To::kColumns, acc[0], mine);
  leave<kN, To>(g, item.row0, item.count, (unit + 4) * To::kColumns, acc[1], mine);
}

template <class To, class Tile>
__device__ __forceinline__ void multiply_item(WideShared<Tile>& sh, const Gemm& g, const WideItem& item,
                                              const char* ring, char* staging, RingPlace& at) {
#define TERN_WIDE(n) \
  case n:            \
    if constexpr (n * kGrain <= Tile::kTokens) return multiply_wide<n * kGrain, To>(sh, g, item, ring, staging, at)
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
    TERN_WIDE(17);
    TERN_WIDE(18);
    TERN_WIDE(19);
    TERN_WIDE(20);
  }
#undef TERN_WIDE
  static_assert(Tile::kTokens <= 20 * kGrain);
}

template <class Tile>
__device__ __forceinline__ void meet() {
  if constexpr (Tile::kCluster == 1) {
    __syncthreads();
  } else {
    hopper::cluster_sync();
  }
}

template <class Tile, class To>
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
      hopper::barrier_init(sh.empty + s, kWarps * Tile::kCluster);
    }
    hopper::barrier_init_done();
    hopper::prefetch_map(&maps.weight), hopper::prefetch_map(&maps.x32), hopper::prefetch_map(&maps.x16);
  }
  if (!grid.settled) wait_for_previous();
  order_experts(sh, g);
  meet<Tile>();
  if (threadIdx.x < 128) {
    hopper::registers_down<40>();
    if (threadIdx.x == 0) fill_wide(sh, ring, maps, base, g, table, grid);
  } else {
    hopper::registers_up<232>();
    wait_for_previous();
    // After the wait: who starts now finds everything done that was launched before this kernel.
    let_next_start();
    RingPlace at;
    WideItem item;
    for (int round = 0; find_item(sh, g, grid, round, &item); ++round) {
      multiply_item<To>(sh, g, item, ring, staging, at);
    }
  }
  __syncwarp();
  meet<Tile>();  // nobody leaves while others write into its ring
}

template <class Tile, class To>
Status launch_wide(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  WeightTable<kMostGroups> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const auto* base = static_cast<const char*>(*std::min_element(weights, weights + g.groups));
  WideMaps maps;
  TERN_RETURN_IF_ERROR(tensor_map_units(base, g.n, g.w_row, g.gated, kRows / 16 / Tile::kCluster, 1, &maps.weight));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, 2 * kBox, &maps.x32));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, kBox, &maps.x16));
  const auto kernel = wide_kernel<Tile, To>;
  const WideGrid grid{static_cast<int>(blocks_for(g.n, kRows)), state(stream).settled == g.offsets};
  const auto blocks = static_cast<unsigned>(state(stream).multiprocessors / Tile::kCluster * Tile::kCluster);
  const Status done = launch(stream, name, {blocks, kThreads, Tile::kBytes, static_cast<unsigned>(Tile::kCluster)},
                             kernel, maps, base, g, table, grid);
  state(stream).settled = g.offsets;
  return done;
}

template <class Tile>
Status launch_tile(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  if (g.gated && state(stream).deterministic) {
    return launch_wide<Tile, WideOut<bf, true, true>>(g, weights, name, stream);
  }
  if (g.gated) return launch_wide<Tile, WideOut<bf, true, false>>(g, weights, name, stream);
  if (g.out_bf16) return launch_wide<Tile, WideOut<bf, false, false>>(g, weights, name, stream);
  return launch_wide<Tile, WideOut<float, false, false>>(g, weights, name, stream);
}

}  // namespace

bool grouped_wide_fits(const Gemm& g, device::Stream stream) {
  const int64_t wide = g.gated ? g.n / 2 : g.n;
  return g.bias == nullptr && (!g.gated || g.out_bf16) && g.groups <= kMostGroups && g.n % 16 == 0 && g.k % kK == 0 &&
         wide % 8 == 0 && reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && g.out_row % 8 == 0 &&
         (g.rows / 64 + g.groups) * blocks_for(g.n, kRows) < (1 << 30) && state(stream).multiprocessors >= 2;
}

Status gemm_grouped_wide(const Gemm& g, const void* const* weights, device::Stream stream) {
  const int64_t rows = g.rows / g.groups;
  if (rows <= kSharedRows) return launch_tile<WideTile<80, 5, 1>>(g, weights, "gemm_hopper_grouped_wide", stream);
  return launch_tile<WideTile<160, 4, 2>>(g, weights, "gemm_hopper_grouped_pairs", stream);
}

}  // namespace tern::cuda
