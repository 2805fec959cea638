// What fills the rings of gemm_grouped_wide.cuh: weights through the copy engine, tokens through it where they lie in
// order, else by a warpgroup's own copies.
#pragma once

#include "cuda/gemm/grouped/gemm_grouped_items.cuh"
#include "cuda/ptx/hopper_units.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {

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

// A stage's share of the weight, for the whole cluster; the stage waits for `more` bytes beside the weight.
template <class Tile>
__device__ __forceinline__ void load_wide_weight(WideShared<Tile>& sh, char* ring, const WideMaps& maps,
                                                 const WideItem& item, int s, int plane, int more, uint64_t policy) {
  constexpr int kCluster = Tile::kCluster, kUnits = kRows / 16 / kCluster;
  const int rank = static_cast<int>(blockIdx.x) % kCluster, unit = item.tile * (kRows / 16) + rank * kUnits;
  uint64_t* const full = sh.full + s;
  char* const to = ring + s * Tile::kStage + rank * (Tile::kWeight / kCluster);
  hopper::barrier_expect(full, static_cast<uint32_t>(Tile::kWeight + more));
  if constexpr (kCluster == 1) {
    hopper::load_units(to, &maps.weight, full, unit, plane, policy);
  } else {
    hopper::load_units_all(to, &maps.weight, full, unit, plane, (1 << kCluster) - 1, policy);
  }
}

// Where the weight of an expert begins, in steps of the map.
__device__ __forceinline__ int plane_of(const WeightTable<kMostGroups>& table, const char* base, const WideItem& item) {
  return static_cast<int>((static_cast<const char*>(table.w[item.group]) - base) / 128);
}

// While nobody knows which experts have rows: the beginning of some tile of the weight, into the second-level cache.
// Most experts have rows when there are many, and someone will read it. One thread.
template <class Tile>
__device__ __forceinline__ void prefetch_wide(const WideMaps& maps, const char* base, const Gemm& g,
                                              const WeightTable<kMostGroups>& table, const WideGrid& grid) {
  constexpr int kPlanes = 4, kUnits = kRows / 16 / Tile::kCluster;
  const int cluster = static_cast<int>(blockIdx.x) / Tile::kCluster,
            rank = static_cast<int>(blockIdx.x) % Tile::kCluster;
  WideItem item{};
  item.group = cluster / grid.tiles % g.groups;
  const int unit = cluster % grid.tiles * (kRows / 16) + rank * kUnits, plane = plane_of(table, base, item);
  for (int p = 0; p < min(kPlanes, static_cast<int>(g.k / kK)); ++p) {
    hopper::prefetch_units(&maps.weight, unit, plane + p);
  }
}

// Stages of all tiles of this block: its share of the weight for the whole cluster, tokens for itself. Of offsets that
// are settled the first stages' weights are read before the launch before has ended. One thread.
template <class Tile>
__device__ __forceinline__ void fill_wide(WideShared<Tile>& sh, char* ring, const WideMaps& maps, const char* base,
                                          const Gemm& g, const WeightTable<kMostGroups>& table, const WideGrid& grid) {
  const int steps = static_cast<int>(g.k / kK);
  WideItem item{};
  const auto boxes = [&] { return (item.wide + kBox - 1) / kBox; };
  const auto load_weight = [&](int s, int plane) {
    load_wide_weight(sh, ring, maps, item, s, plane, boxes() * kBox * kRow, hopper::kEvictNormal);
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
    for (; ahead < min(steps, Tile::kDepth); ++ahead) load_weight(ahead, plane_of(table, base, item) + ahead);
  }
  wait_for_previous();
  for (int round = 0; find_item(sh, g, grid, round, &item); ++round) {
    const int plane = plane_of(table, base, item);
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

// The same of tokens that lie apart (Gemm::from): copied by all threads of the warpgroup, 16 bytes each, to where the
// copy engine would have put them. A stage is full when the copies of each thread are there, too. Weights of pairs
// leave the cache first: the tokens, all of which fit there, are read many times. Of blocks by themselves several may
// have tokens of one expert, and read its weight at about the same time.
template <class Tile>
__device__ __forceinline__ void fill_gathered(WideShared<Tile>& sh, char* ring, const WideMaps& maps, const char* base,
                                              const Gemm& g, const WeightTable<kMostGroups>& table,
                                              const WideGrid& grid) {
  constexpr int kTogether = 128 / 8, kEach = Tile::kTokens / kTogether;  // rows of a pass, of a thread
  constexpr uint64_t kPolicy = Tile::kCluster == 1 ? hopper::kEvictNormal : hopper::kEvictFirst;
  static_assert(Tile::kTokens % kTogether == 0);
  const int steps = static_cast<int>(g.k / kK), piece = static_cast<int>(threadIdx.x) % 8;
  const int first = static_cast<int>(threadIdx.x) / 8, pieces = static_cast<int>(g.x_row / 8);
  char* const own = ring + Tile::kWeight + first * kRow + (piece ^ first % 8) * 16;
  const auto* const x = static_cast<const uint4*>(g.x) + piece;
  WideItem item{};
  RingPlace at;
  wait_for_previous();
  for (int round = 0; find_item(sh, g, grid, round, &item); ++round) {
    const int plane = plane_of(table, base, item);
    int row[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int r = first + i * kTogether;
      row[i] = r < item.count ? g.from[item.row0 + r] * pieces : -1;
    }
    for (int k = 0; k < steps; ++k) {
      hopper::barrier_wait(sh.empty + at.s, at.phase ^ 1);
      if (threadIdx.x == 0) load_wide_weight(sh, ring, maps, item, at.s, plane + k, 0, kPolicy);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (row[i] >= 0) {
          hopper::copy_piece(own + at.s * Tile::kStage + i * kTogether * kRow, x + row[i] + k * (kRow / 16));
        }
      }
      hopper::barrier_arrive_behind_copies(sh.full + at.s);
      at.template next<Tile>();
    }
  }
}

}  // namespace tern::cuda
