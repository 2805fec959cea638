// Products with one weight on Hopper.
#include <utility>

#include "cuda/gemm_hopper.cuh"
#include "cuda/gemm_join.cuh"
#include "cuda/tensor_map.h"

namespace tern::cuda {
namespace {

// Tiles of a product, and in which order blocks take them: up to kBand tiles of rows side by side, so that the weight
// tiles of a wave are few enough to stay in the cache while all of its rows pass.
struct HopperGrid {
  static constexpr int kBand = 8;
  int weight_tiles, row_tiles, k_tiles;
  int split;  // blocks of a cluster, which share the k of a tile
  bool wide;  // rows of out begin at multiples of 16 bytes
  uint64_t weight_policy;
};

template <class Tile>
__device__ HopperWork work_of(const Gemm& g, const HopperGrid& grid, int rank) {
  const int index = static_cast<int>(blockIdx.x) / grid.split, band = HopperGrid::kBand * grid.weight_tiles;
  const int row_tile0 = index / band * HopperGrid::kBand;
  const int across = min(HopperGrid::kBand, grid.row_tiles - row_tile0);
  const int row_tile = row_tile0 + index % band % across, weight_tile = index % band / across;
  HopperWork w;
  w.row0 = int64_t{row_tile} * Tile::kTokens;
  w.col0 = int64_t{weight_tile} * (g.gated ? Tile::kRows / 2 : Tile::kRows);
  w.count = static_cast<int>(min(int64_t{Tile::kTokens}, g.rows - w.row0));
  w.first = rank * grid.k_tiles / grid.split, w.last = (rank + 1) * grid.k_tiles / grid.split;
  return w;
}

// One thread.
template <class Tile>
__device__ __forceinline__ void fill(const Ring<Tile>& ring, const HopperWork& work, const Gemm& g,
                                     const HopperGrid& grid, const CUtensorMap* weight_map, const CUtensorMap* x_map) {
  fill_ring(
      ring, work, Tile::kTokens * Tile::kK * 2,
      [&](char* to, uint64_t* barrier, int k) {
        load_weight(g, work.col0, to, [&](char* at, int row) {
          hopper::load_box(at, weight_map, barrier, k * Tile::kK, row, grid.weight_policy);
        });
      },
      [&](char* to, uint64_t* barrier, int k) {
        hopper::load_box(to, x_map, barrier, k * Tile::kK, static_cast<int>(work.row0), hopper::kEvictLast);
      });
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    hopper_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                  const Gemm g, const HopperGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  let_next_start();
  const Ring<Tile> ring = make_ring<Tile>(memory, barriers);
  const int rank = grid.split == 1 ? 0 : hopper::cluster_rank();
  const HopperWork work = work_of<Tile>(g, grid, rank);
  float* const part = reinterpret_cast<float*>(ring.stages);
  if (threadIdx.x >= Tile::kWorkers) {
    if (threadIdx.x == Tile::kWorkers) fill(ring, work, g, grid, &weight_map, &x_map);
    __syncwarp();
  } else {
    multiply<Tile::kTokens>(ring, work, part);
  }
  if (grid.split == 1) {
    __syncthreads();
    finish<Tile, 1>(g, work, part, 0, grid.wide);
    return;
  }
  hopper::cluster_sync();
  if (grid.split == 2) {
    finish<Tile, 2>(g, work, part, rank, grid.wide);
  } else if (grid.split == 4) {
    finish<Tile, 4>(g, work, part, rank, grid.wide);
  } else {
    finish<Tile, 8>(g, work, part, rank, grid.wide);
  }
  hopper::cluster_sync();  // nobody leaves while others read
}

// The same for few rows and a k that is cut: gemm_join.cuh.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    joined_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                  const Gemm g, const HopperGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth], arrived;
  let_next_start();
  if (threadIdx.x == 32) {
    hopper::barrier_init(&arrived, 1);
    hopper::barrier_init_done();
    hopper::barrier_expect(&arrived, Join<Tile>::kBytes);
  }
  const Ring<Tile> ring = make_ring<Tile>(memory, barriers);
  hopper::cluster_arrive();  // others may send from here on
  const int rank = hopper::cluster_rank();
  const HopperWork work = work_of<Tile>(g, grid, rank);
  if (threadIdx.x >= Tile::kWorkers) {
    if (threadIdx.x == Tile::kWorkers) fill(ring, work, g, grid, &weight_map, &x_map);
    __syncwarp();
    hopper::cluster_wait();
    return;
  }
  auto* join = reinterpret_cast<float*>(ring.stages + Tile::kRing);
  Sums<Tile::kTokens> sums;
  accumulate<Tile::kTokens>(ring, work, sums);
  hopper::cluster_wait();
  if (grid.split == 2) {
    join_parts<Tile, 2>(g, work, sums, rank, join, &arrived, grid.wide);
  } else if (grid.split == 4) {
    join_parts<Tile, 4>(g, work, sums, rank, join, &arrived, grid.wide);
  } else {
    join_parts<Tile, 8>(g, work, sums, rank, join, &arrived, grid.wide);
  }
}

template <class Tile, bool kJoined = false>
Status launch_tile(const Gemm& g, const void* weight, HopperGrid grid, const char* name, device::Stream stream) {
  grid.row_tiles = static_cast<int>(blocks_for(g.rows, Tile::kTokens));
  grid.weight_policy = grid.row_tiles == 1 ? hopper::kEvictFirst : hopper::kEvictNormal;
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(tensor_map(weight, g.n, g.k, g.w_row, 64, &weight_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, Tile::kTokens, &x_map));
  const auto [kernel, bytes] = [] {
    if constexpr (kJoined) return std::pair{&joined_kernel<Tile>, Join<Tile>::kShared};
    if constexpr (!kJoined) return std::pair{&hopper_kernel<Tile>, Tile::kBytes};
  }();
  if (Status s = allow_shared(name, kernel, bytes); !s.ok()) return s;
  const auto blocks = static_cast<unsigned>(grid.weight_tiles * grid.row_tiles * grid.split);
  return cuda::launch(stream, name, {blocks, Tile::kThreads, bytes, static_cast<unsigned>(grid.split)}, kernel,
                      weight_map, x_map, g, grid);
}

// Three smaller blocks per multiprocessor where there are enough of them, else two with deeper rings.
template <class Many, class Joined, class Few>
Status launch_few(const Gemm& g, const void* weight, const HopperGrid& grid, const char* name, device::Stream stream) {
  if (int64_t{grid.weight_tiles} * grid.split > 2 * int64_t{state(stream).multiprocessors}) {
    return launch_tile<Many>(g, weight, grid, name, stream);
  }
  if (grid.split > 1) return launch_tile<Joined, true>(g, weight, grid, name, stream);
  return launch_tile<Few>(g, weight, grid, name, stream);
}

}  // namespace

int hopper_split(int64_t n, int64_t k) {
  const int64_t tiles = blocks_for(n, 128), k_tiles = blocks_for(k, 64);
  int split = 1;
  while (split < 8 && tiles * split * 2 <= 224 && k_tiles / (split * 2) >= 4) split *= 2;
  // Halves of these just fill three blocks per multiprocessor.
  if (split == 1 && tiles > 170 && tiles <= 198 && k_tiles >= 32) split = 2;
  return split;
}

// Cutting k fills the GPU when there are few tiles. In deterministic mode it is cut alike for any number of rows.
Status gemm_hopper(const Gemm& g, const void* weight, device::Stream stream) {
  int split = hopper_split(g.n, g.k);
  if (!state(stream).deterministic && g.rows > 256) {
    const int64_t tiles = blocks_for(g.n, 128) * blocks_for(g.rows, 256);
    while (split > 1 && tiles * split > state(stream).multiprocessors) split /= 2;
  }
  return gemm_hopper(g, weight, split, stream);
}

Status gemm_hopper(const Gemm& g, const void* weight, int split, device::Stream stream) {
  HopperGrid grid{};
  grid.weight_tiles = static_cast<int>(blocks_for(g.n, 128)), grid.k_tiles = static_cast<int>(blocks_for(g.k, 64));
  grid.split = split;
  grid.wide = reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && g.out_row % 8 == 0;
  if (g.rows <= 8) {
    return launch_few<HopperTile<8, 8, 4, 3>, HopperTile<8, 8, 6, 2>, HopperTile<8, 8, 6, 2>>(g, weight, grid,
                                                                                              "gemm_hopper_8", stream);
  }
  if (g.rows <= 16) {
    return launch_few<HopperTile<16, 16, 4, 3>, HopperTile<16, 16, 5, 2>, HopperTile<16, 16, 6, 2>>(
        g, weight, grid, "gemm_hopper_16", stream);
  }
  if (g.rows <= 32) {
    return launch_few<HopperTile<32, 32, 3, 3>, HopperTile<32, 32, 4, 2>, HopperTile<32, 32, 5, 2>>(
        g, weight, grid, "gemm_hopper_32", stream);
  }
  if (g.rows <= 64) {
    return launch_few<HopperTile<64, 64, 3, 3>, HopperTile<64, 64, 3, 2>, HopperTile<64, 64, 4, 2>>(
        g, weight, grid, "gemm_hopper_64", stream);
  }
  if (g.rows <= 128) return launch_tile<HopperTile<128, 128, 3, 2>>(g, weight, grid, "gemm_hopper_128", stream);
  return launch_tile<HopperTile<256, 256, 4, 1>>(g, weight, grid, "gemm_hopper_256", stream);
}

}  // namespace tern::cuda
