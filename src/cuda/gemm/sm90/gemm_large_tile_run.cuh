// The kernel of gemm_large_tile.cuh and how it is launched.
#pragma once

#include "base/checked.h"
#include "cuda/gemm/sm90/gemm_large_tile_epilogue.cuh"
#include "cuda/ptx/cluster_count.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {

// All parts of a tile in their order.
template <class Tile>
__device__ __forceinline__ void multiply_chains(const LargeTileRing<Tile>& ring, const LargeTileGrid& grid,
                                                LargeTileJob j, int& i, typename Tile::Sums& sum) {
  for (int part = 0; part < grid.chains; ++part) {
    j.first = part * grid.k_tiles / grid.chains, j.last = (part + 1) * grid.k_tiles / grid.chains;
    typename Tile::Sums acc = {};
    multiply_large_tile<Tile>(ring, j, i, acc);
#pragma unroll
    for (int n = 0; n < Tile::kTokens / 2; ++n) {
      float& to = sum[n / (Tile::kWide / 2)][n % (Tile::kWide / 2)];
      const float v = acc[n / (Tile::kWide / 2)][n % (Tile::kWide / 2)];
      to = part == 0 ? v : to + v;
    }
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kBound, 1)
    large_tile_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                      const Gemm g, const LargeTileGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  let_next_start();
  const uint32_t at = hopper::shared_address(memory);
  const LargeTileRing<Tile> ring{memory + ((at + 1023) / 1024 * 1024 - at), barriers, barriers + Tile::kDepth};
  const int rank = Tile::kClusterSize > 1 ? hopper::cluster_rank() : 0;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kDepth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, Tile::kClusterSize * Tile::kWarps);
    }
    hopper::barrier_init_done();
  }
  if constexpr (Tile::kClusterSize > 1) {
    hopper::cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= Tile::kWorkers) {
    if constexpr (Tile::kMoves) hopper::registers_down<Tile::kDown>();
    const LargeTileLoads<Tile> loads{ring, &weight_map, &x_map, grid.weight_policy, grid.box, rank};
    if (threadIdx.x == Tile::kWorkers) fill_large_tile(loads, grid);
    __syncwarp();
  } else {
    if constexpr (Tile::kMoves) hopper::registers_up<Tile::kUp>();
    if (threadIdx.x < 32) bring_parameters(g, grid);
    const int step = static_cast<int>(gridDim.x) / Tile::kClusterSize;
    int i = 0;
    for (int index = static_cast<int>(blockIdx.x) / Tile::kClusterSize; index < grid.jobs; index += step) {
      const LargeTileJob j = large_tile_job<Tile>(grid, index, rank);
      // Not because of its value: else its registers would live through all of the loop.
      typename Tile::Sums acc = {};
      if constexpr (Tile::kSums) {
        multiply_chains<Tile>(ring, grid, j, i, acc);
      } else {
        multiply_large_tile<Tile>(ring, j, i, acc);
      }
      epilogue_large_tile<Tile>(g, grid, j, index, rank, acc);
    }
  }
  if constexpr (Tile::kClusterSize > 1) hopper::cluster_sync();  // nobody leaves while others' copies come here
}

// How many clusters run at once. Two blocks find places everywhere; for more it is asked once per GPU.
template <class Tile>
int clusters_at_once(device::Stream stream) {
  if constexpr (Tile::kClusterSize <= 2) return state(stream).multiprocessors / Tile::kClusterSize;
  static ClusterCount count;
  return count.of("gemm_large_tile", large_tile_kernel<Tile>,
                  {dim3(1), Tile::kThreads, Tile::kBytes, Tile::kClusterSize}, 1, stream);
}

template <class Tile>
Status run_large_tile(const Gemm& g, const void* weight, int split, const char* name, device::Stream stream) {
  const StreamState& s = state(stream);
  LargeTileGrid grid{};
  grid.across = static_cast<int>(blocks_for(g.n, int64_t{Tile::kRows} * Tile::kClusterSize));
  grid.row_tiles = static_cast<int>(blocks_for(g.rows, Tile::kTokens));
  grid.k_tiles = static_cast<int>(blocks_for(g.k, Tile::kK));
  grid.split = Tile::kSums ? 1 : split, grid.chains = Tile::kSums ? split : 1;
  grid.jobs = grid.across * grid.row_tiles * grid.split;
  grid.weight_policy = grid.row_tiles == 1 ? hopper::kEvictFirst : hopper::kEvictNormal;
  grid.parts = s.parts, grid.tickets = s.tickets;
  CUtensorMap weight_map, x_map;
  if constexpr (Tile::kGated) {
    TERN_RETURN_IF_ERROR(tensor_map_units(weight, g.n, g.w_row, true, Tile::kRows / 16, 1, &weight_map));
  } else {
    TERN_RETURN_IF_ERROR(tensor_map(weight, g.n, g.k, g.w_row, Tile::kRows, &weight_map));
  }
  grid.box = token_box(blocks_for(g.rows, Tile::kClusterSize), Tile::kTokens / Tile::kClusterSize);
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, grid.box, &x_map));
  const auto kernel = large_tile_kernel<Tile>;
  const int most = clusters_at_once<Tile>(stream);
  const auto blocks = static_cast<unsigned>(Tile::kClusterSize * (grid.jobs < most ? grid.jobs : most));
  return launch(stream, name, {dim3(blocks), Tile::kThreads, Tile::kBytes, static_cast<unsigned>(Tile::kClusterSize)},
                kernel, weight_map, x_map, g, grid);
}

// kLeast: tokens of the smallest tile.
template <int kGroups, bool kGated, int kLeast = 8>
Status run_tile(const Gemm& g, const void* weight, int split, device::Stream stream) {
  constexpr bool kTall = kGroups == 3;
  if constexpr (kLeast <= 8) {
    if (g.rows <= 8) {
      return run_large_tile<LargeTileDims<8, kGroups, kTall ? 9 : 12, kGated>>(g, weight, split, "gemm_large_tile_8",
                                                                               stream);
    }
    if (g.rows <= 32) {
      return run_large_tile<LargeTileDims<32, kGroups, kTall ? 8 : 10, kGated>>(g, weight, split, "gemm_large_tile_32",
                                                                                stream);
    }
  }
  if (g.rows <= 64) {
    return run_large_tile<LargeTileDims<64, kGroups, kTall ? 7 : 9, kGated>>(g, weight, split, "gemm_large_tile_64",
                                                                             stream);
  }
  if (g.rows <= 128) {
    return run_large_tile<LargeTileDims<128, kGroups, kTall ? 5 : 7, kGated>>(g, weight, split, "gemm_large_tile_128",
                                                                              stream);
  }
  return run_large_tile<LargeTileDims<256, kGroups, 4, kGated>>(g, weight, split, "gemm_large_tile_256", stream);
}

}  // namespace tern::cuda
