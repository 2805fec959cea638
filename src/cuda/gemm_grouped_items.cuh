// Which tiles the blocks of gemm_grouped_wide.cuh take, and in which order.
#pragma once

#include <cstdint>

#include "cuda/gemm.h"
#include "cuda/gemm_leave.cuh"

namespace tern::cuda {

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

}  // namespace tern::cuda
