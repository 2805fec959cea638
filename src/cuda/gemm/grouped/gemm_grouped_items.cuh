// Which tiles the blocks of gemm_grouped_wide.cuh take, and in which order.
#pragma once

#include <cstdint>

#include "cuda/gemm/epilogues/store_epilogue.cuh"
#include "cuda/gemm/gemm.h"

namespace tern::cuda {

constexpr int kRows = kWideRows, kK = kWideK, kRow = kK * 2;  // bytes of a row in a stage
constexpr int kThreads = 384, kWarps = 8;
constexpr int kGrain = 8;  // tokens are multiplied in multiples of this: the code has a loop for each
constexpr int kBox = 16;   // and are loaded in multiples of this
constexpr int kGroupWarps = kMostGroups / 32;

template <int kTokens_, int kDepth_, int kCluster_>
struct WideTile {
  static constexpr int kTokens = kTokens_, kDepth = kDepth_, kCluster = kCluster_;
  static constexpr int kWeight = kRows * kRow, kStage = kWeight + kTokens * kRow;
  static constexpr size_t kBytes = 1024 + kStage * kDepth + kWarps * kStaging;
  static constexpr int kSizes = kTokens / kGrain + 1;
};

template <class Tile>
struct WideShared {
  uint64_t full[Tile::kDepth], empty[Tile::kDepth];
  int offsets[kMostGroups + 1];
  int16_t each[kMostGroups];              // rows of a block's tile, 0: this expert has none
  int16_t order[kMostGroups];             // experts by falling rows of a tile
  int first[kMostGroups + 1];             // row tiles (of clusters) of the experts before, in that order
  int sized[Tile::kSizes * kGroupWarps];  // experts of larger tiles, and those of one size by warps
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

// Every value of `at` becomes the sum of those before it; returns the sum of all. A warp.
template <int kEach>
__device__ __forceinline__ int sums_before(int* at, int n) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  int v[kEach], own = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    v[i] = lane * kEach + i < n ? at[lane * kEach + i] : 0;
    own += v[i];
  }
  int sum = own;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= d) sum += other;
  }
  int before = sum - own;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (lane * kEach + i < n) at[lane * kEach + i] = before;
    before += v[i];
  }
  return __shfl_sync(0xffffffffu, sum, 31);
}

// Experts in the order in which they are taken: the largest tiles first. All threads; many products wait for it.
template <class Tile>
__device__ void order_experts(WideShared<Tile>& sh, const Gemm& g) {
  static_assert(kThreads > kMostGroups);
  constexpr int kPlaces = Tile::kSizes * kGroupWarps, kEach = (kPlaces + 31) / 32;
  const int e = static_cast<int>(threadIdx.x), warp = e / 32;
  if (e <= g.groups) sh.offsets[e] = g.offsets[e];
  for (int i = e; i < kPlaces; i += kThreads) sh.sized[i] = 0;
  __syncthreads();
  const int rows = e < g.groups ? sh.offsets[e + 1] - sh.offsets[e] : 0;
  const int tiles = row_tiles<Tile>(rows), parts = max(1, tiles) * Tile::kCluster;
  const int size = ((rows + parts - 1) / parts + kGrain - 1) / kGrain;
  const int place = (Tile::kSizes - 1 - size) * kGroupWarps + warp;
  const unsigned equal = __match_any_sync(0xffffffffu, e < g.groups ? size : -1);
  const int rank = __popc(equal & ((1u << (e & 31)) - 1));
  if (e < g.groups) {
    sh.each[e] = static_cast<int16_t>(size * kGrain);
    if (rank == 0) sh.sized[place] = __popc(equal);
  }
  __syncthreads();
  if (warp == 0) sums_before<kEach>(sh.sized, kPlaces);
  __syncthreads();
  if (e < g.groups) {
    const int at = sh.sized[place] + rank;
    sh.order[at] = static_cast<int16_t>(e), sh.first[at] = tiles;
  }
  __syncthreads();
  if (warp != 0) return;
  const int all = sums_before<kMostGroups / 32>(sh.first, g.groups);
  if (e == 0) sh.first[g.groups] = all;
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

}  // namespace tern::cuda
