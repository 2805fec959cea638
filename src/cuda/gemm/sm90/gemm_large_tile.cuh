// Products of large weights on Hopper in deterministic mode, and outside of it where they are ahead (choice.cc): 128 or
// 192 rows of the weight are the tall side of wgmma, up to 256 tokens the wide one, a warpgroup for every 64 rows of
// the weight. Tiles are that tall so that they and the parts into which k is cut, which follow from the weight alone,
// fill the GPU in whole waves. A part is one chain of steps of 16 values of k, as in gemm_wgmma_sm90.cu, and parts are
// added in order: tile and tokens change no bit.
//
// Parts are blocks of their own, joined through memory: clusters of large blocks leave many multiprocessors idle. The
// warps that have the same place in the parts of a tile wait for each other and add up, each for some tokens. All
// blocks of such a product run at once (only the compute stream may have kernels that wait so). Products whose k is not
// cut wait for nobody, nor do those of many tokens, where a block has all parts of a tile: they take one tile after the
// other. Where a norm follows it adds parts up itself, outside deterministic mode (Gemm::apart).
//
// What multiprocessors read of the second-level cache is the limit where many tiles of the weight read the same tokens:
// two or four blocks of a cluster, a cluster, have neighbouring tiles and read every token once.
#pragma once

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/hopper_units.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace tern::cuda {

// kGated: rows of the weight in units of 8 of gate and the 8 of up that belong to them, so that a thread has both.
// kSums: a block has all parts of a tile, one after the other, beside their sum.
template <int kTokens_, int kGroups_, int kDepth_, bool kGated_, bool kSums_ = false,
          int kClusterSize_ = (kTokens_ > 64 ? 2 : 1)>
struct LargeTileDims {
  static constexpr int kTokens = kTokens_, kGroups = kGroups_, kDepth = kDepth_;
  static constexpr int kClusterSize = kClusterSize_;
  // With 256 tokens the sums need registers that other warpgroups have to spare.
  static constexpr bool kGated = kGated_, kSums = kSums_;
  // Tall tiles of 128 tokens leave registers for the blocks of the norm before, so that their weights come beside it.
  static constexpr bool kLean = kGroups == 3 && kTokens == 128 && !kSums;
  static constexpr bool kMoves = 64 * kGroups * kTokens > 128 * 128 && !kLean;
  static constexpr int kUp = kGroups == 3 ? 160 : 232, kDown = kGroups == 3 ? 32 : 40;
  static constexpr int kRows = 64 * kGroups, kK = 64, kWorkers = 128 * kGroups, kWarps = kWorkers / 32;
  static constexpr int kThreads = kWorkers + (kMoves ? 128 : 32);
  static constexpr int kBound = kLean ? 640 : kThreads;  // threads by which registers are dealt out
  static constexpr int kWeight = kRows * kK * 2, kX = kTokens * kK * 2, kStage = kWeight + kX;  // bytes
  static constexpr int kQuads = kTokens / 8;                                                    // sums of a thread / 4
  static constexpr size_t kBytes = 1024 + kDepth * kStage;
  // The assembler allows no instruction more registers than every thread of 512 begins with.
  static constexpr int kPieces = kTokens > 128 && kGroups == 3 ? 2 : 1, kWide = kTokens / kPieces;
  using Sums = float[kPieces][kWide / 2];
};

struct LargeTileGrid {
  static constexpr int kBand = 8;  // tiles of tokens side by side, while their weight is in the cache
  int across;                      // tiles of the weight by clusters
  int row_tiles, k_tiles, split;
  int chains;  // in a job, which has all of k where that is more than one
  int jobs;    // of clusters: part by part, then by tokens of a band, then along the weight
  int box;     // tokens that a block brings to all of its cluster
  uint64_t weight_policy;
  float4* parts;      // [blocks][kQuads][kWorkers]
  uint32_t* tickets;  // [tiles][kWarps]: parts that are there, and 65536 for each that was read; then zero
};

struct LargeTileJob {
  int weight_tile, row_tile, part, first, last;  // k tiles [first, last)
};

template <class Tile>
__device__ __forceinline__ LargeTileJob large_tile_job(const LargeTileGrid& grid, int index, int rank) {
  LargeTileJob j;
  const int tile = index / grid.split, band = LargeTileGrid::kBand * grid.across;
  const int row0 = tile / band * LargeTileGrid::kBand, side = min(LargeTileGrid::kBand, grid.row_tiles - row0);
  j.part = index - tile * grid.split;
  j.row_tile = row0 + tile % band % side, j.weight_tile = tile % band / side * Tile::kClusterSize + rank;
  j.first = j.part * grid.k_tiles / grid.split, j.last = (j.part + 1) * grid.k_tiles / grid.split;
  return j;
}

template <class Tile>
struct LargeTileRing {
  char* stages;
  uint64_t *full, *empty;
  __device__ char* weight(int s) const { return stages + s * Tile::kStage; }
  __device__ char* x(int s) const { return weight(s) + Tile::kWeight; }
};

// What goes into stage s of the ring.
template <class Tile>
struct LargeTileLoads {
  const LargeTileRing<Tile>& ring;
  const CUtensorMap *weight_map, *x_map;
  uint64_t weight_policy;
  int box, rank;
  __device__ void weight(int s, const LargeTileJob& j, int k) const {
    uint64_t* const full = ring.full + s;
    hopper::barrier_expect(full, static_cast<uint32_t>(Tile::kWeight + box * (Tile::kClusterSize * Tile::kK * 2)));
    if constexpr (Tile::kGated) {
      hopper::load_units(ring.weight(s), weight_map, full, j.weight_tile * (Tile::kRows / 16), k, weight_policy);
    } else {
      hopper::load_box(ring.weight(s), weight_map, full, k * Tile::kK, j.weight_tile * Tile::kRows, weight_policy);
    }
  }
  // Each block of a cluster brings its share of the tokens to all.
  __device__ void x(int s, const LargeTileJob& j, int k) const {
    constexpr auto kAll = static_cast<uint16_t>((1 << Tile::kClusterSize) - 1);
    char* const to = ring.x(s) + rank * box * Tile::kK * 2;
    const int token = j.row_tile * Tile::kTokens + rank * box;
    if constexpr (Tile::kClusterSize > 1) {
      hopper::load_box_all(to, x_map, ring.full + s, k * Tile::kK, token, kAll, hopper::kEvictLast);
    } else {
      hopper::load_box(to, x_map, ring.full + s, k * Tile::kK, token, hopper::kEvictLast);
    }
  }
};

// One thread of a block.
template <class Tile>
__device__ void fill_large_tile(const LargeTileLoads<Tile>& loads, const LargeTileGrid& grid) {
  const int step = static_cast<int>(gridDim.x) / Tile::kClusterSize;
  int i = 0;
  for (int index = static_cast<int>(blockIdx.x) / Tile::kClusterSize; index < grid.jobs; index += step) {
    const LargeTileJob j = large_tile_job<Tile>(grid, index, loads.rank);
    int k = j.first;
    if (i == 0) {
      const int ahead = min(j.last - j.first, Tile::kDepth);
      for (; i < ahead; ++i) loads.weight(i, j, j.first + i);
      wait_for_previous();  // weights are never written by a step, x is
      for (; k < j.first + ahead; ++k) loads.x(k - j.first, j, k);
    }
    for (; k < j.last; ++k, ++i) {
      const int s = i % Tile::kDepth;
      if (i >= Tile::kDepth) {
        hopper::barrier_wait(loads.ring.empty + s, static_cast<uint32_t>(i / Tile::kDepth - 1) & 1);
      }
      loads.weight(s, j, k);
      loads.x(s, j, k);
    }
  }
}

// The place may be filled again, in all blocks of the cluster.
template <class Tile>
__device__ __forceinline__ void release_large_tile(const LargeTileRing<Tile>& ring, int i) {
  const int lane = threadIdx.x & 31;
  if constexpr (Tile::kClusterSize > 1) {
    if (lane < Tile::kClusterSize) hopper::barrier_arrive_at(ring.empty + i % Tile::kDepth, lane);
  } else {
    if (lane == 0) hopper::barrier_arrive(ring.empty + i % Tile::kDepth);
  }
}

// The chain of one job. `i`: stages of the ring that were used before.
template <class Tile>
__device__ __forceinline__ void multiply_large_tile(const LargeTileRing<Tile>& ring, const LargeTileJob& j, int& i,
                                                    typename Tile::Sums& acc) {
  const uint32_t half = threadIdx.x / 128 * 64 * Tile::kK * 2;
  for (int k = j.first; k < j.last; ++k, ++i) {
    const int s = i % Tile::kDepth;
    const uint64_t a = hopper::tile_descriptor(hopper::shared_address(ring.weight(s)) + half);
    const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
    hopper::barrier_wait(ring.full + s, static_cast<uint32_t>(i / Tile::kDepth) & 1);
    hopper::wgmma_fence();
#pragma unroll
    for (int n = 0; n < Tile::kK / 16; ++n) {
#pragma unroll
      for (int p = 0; p < Tile::kPieces; ++p) {
        hopper::Wgmma<Tile::kWide>::run(acc[p], a + 2 * n, b + 2 * n + p * (Tile::kWide * Tile::kK * 2 / 16),
                                        k > j.first || n > 0);
      }
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (k > j.first) release_large_tile<Tile>(ring, i - 1);
  }
  hopper::wgmma_wait<0>();
  release_large_tile<Tile>(ring, i - 1);
}

}  // namespace tern::cuda
