// Products with one weight per expert on Hopper: rows sorted by expert, of which only the device knows how many there
// are. A block multiplies as many columns of tokens as its expert has, so that crowded experts cost what they must and
// the others what their weights cost.
#include <algorithm>

#include "cuda/gemm/gemm.h"
#include "cuda/gemm/sm90/gemm_wgmma.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

// The tile of rows number `index` over all experts. Every lane counts the tiles of neighbouring experts, all of them at
// once. One warp's work, result for all lanes; row0 < 0: there is none.
__device__ RowTile find_row_tile(const int32_t* offsets, int groups, int index, int rows_per_tile) {
  const int lane = threadIdx.x & 31, each = (groups + 31) / 32;
  const int begin = min(lane * each, groups), end = min(begin + each, groups);
  int tiles = 0;
  for (int e = begin; e < end; ++e) tiles += (offsets[e + 1] - offsets[e] + rows_per_tile - 1) / rows_per_tile;
  int sum = tiles;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= d) sum += other;
  }
  const unsigned who = __ballot_sync(0xffffffffu, index < sum && index >= sum - tiles);
  if (who == 0) return {0, -1, -1};
  int group = 0, row0 = 0, row_end = 0, left = index - (sum - tiles);
  if (left >= 0 && index < sum) {
    for (group = begin; group < end; ++group) {
      const int mine = (offsets[group + 1] - offsets[group] + rows_per_tile - 1) / rows_per_tile;
      if (left < mine) break;
      left -= mine;
    }
    row0 = offsets[group] + left * rows_per_tile, row_end = offsets[group + 1];
  }
  const int source = __ffs(static_cast<int>(who)) - 1;
  return {__shfl_sync(0xffffffffu, group, source), __shfl_sync(0xffffffffu, row0, source),
          __shfl_sync(0xffffffffu, row_end, source)};
}

template <class Tile>
__device__ void multiply_some(const Ring<Tile>& ring, const HopperWork& work, float* part) {
  if (work.count <= 8) return multiply<8>(ring, work, part);
  if (work.count <= 16) return multiply<16>(ring, work, part);
  if constexpr (Tile::kTokens >= 32) {
    if (work.count <= 32) return multiply<32>(ring, work, part);
  }
  if constexpr (Tile::kTokens >= 64) {
    if (work.count <= 64) return multiply<64>(ring, work, part);
  }
  if constexpr (Tile::kTokens >= 128) return multiply<128>(ring, work, part);
}

struct GroupedGrid {
  int split = 1;         // blocks that share the k of a tile
  bool settled = false;  // the offsets were there before the kernel before this one began to write
  bool wide = false;     // rows of out begin at multiples of 16 bytes
};

template <class Tile>
__device__ void fill(const Ring<Tile>& ring, const CUtensorMap& weight_map, const CUtensorMap& x_map, const Gemm& g,
                     const HopperWork& work, int plane) {
  const int boxes = (work.count + Tile::kBoxRows - 1) / Tile::kBoxRows;
  constexpr int kBox = Tile::kBoxRows * Tile::kK * 2;
  fill_ring(
      ring, work, boxes * kBox,
      [&](char* to, uint64_t* barrier, int k) {
        load_weight<Tile>(g, work.col0, to, [&](char* at, int row) {
          hopper::load_box(at, &weight_map, barrier, 0, row, plane + k, hopper::kEvictNormal);
        });
      },
      [&](char* to, uint64_t* barrier, int k) {
        for (int b = 0; b < boxes; ++b) {
          hopper::load_box(to + b * kBox, &x_map, barrier, k * Tile::kK,
                           static_cast<int>(work.row0) + b * Tile::kBoxRows, hopper::kEvictLast);
        }
      });
}

template <class Tile, int kCount>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    grouped_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                   const char* base, const Gemm g, const __grid_constant__ WeightTable<kCount> table,
                   const GroupedGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  const Ring<Tile> ring = make_ring<Tile>(memory, barriers);
  if (threadIdx.x < 32) bring_parameters(g, grid);
  // Which weights there are to read is a result of a launch before.
  if (!grid.settled) wait_for_previous();
  const RowTile tile = find_row_tile(g.offsets, g.groups, static_cast<int>(blockIdx.y), Tile::kTokens);
  const int rank = grid.split == 1 ? 0 : hopper::cluster_rank();
  const int column = static_cast<int>(blockIdx.x) / grid.split, k_tiles = static_cast<int>(g.k / Tile::kK);
  HopperWork work{tile.row0, int64_t{column} * (g.gated ? Tile::kRows / 2 : Tile::kRows), 0, 0, k_tiles};
  if (grid.split > 1) work.first = rank * k_tiles / grid.split, work.last = (rank + 1) * k_tiles / grid.split;
  work.count = static_cast<int>(min(int64_t{Tile::kTokens}, tile.row_end - tile.row0));
  const bool fills = threadIdx.x == Tile::kWorkers && tile.row0 >= 0;
  if (!fills) wait_for_previous();
  // After the wait: who starts now finds everything done that was launched before this kernel.
  if (!fills) let_next_start();
  if (tile.row0 < 0) return;
  float* const part = reinterpret_cast<float*>(ring.stages);
  if (threadIdx.x >= Tile::kWorkers) {
    if (fills) {
      const auto plane = static_cast<int>((static_cast<const char*>(table.w[tile.group]) - base) / 128);
      fill(ring, weight_map, x_map, g, work, plane);
    }
    __syncwarp();
  } else {
    multiply_some(ring, work, part);
  }
  if (grid.split == 1) {
    __syncthreads();
    return finish<Tile, 1>(g, work, part, 0, grid.wide);
  }
  hopper::cluster_sync();
  finish<Tile, 2>(g, work, part, rank, grid.wide);
  hopper::cluster_sync();  // nobody leaves while others read
}

template <class Tile, int kCount>
Status launch_counted(const Gemm& g, const void* const* weights, int split, const char* name, device::Stream stream) {
  WeightTable<kCount> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const auto* base = static_cast<const char*>(*std::min_element(weights, weights + g.groups));
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(tensor_map_anywhere(base, g.n, g.w_row, 64, &weight_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, Tile::kBoxRows, &x_map));
  const auto kernel = grouped_kernel<Tile, kCount>;
  const int64_t tiles = blocks_for(g.rows, Tile::kTokens) + std::min<int64_t>(g.groups, g.rows);
  TERN_OP_CHECK("grouped_linear", tiles <= 65535, "there are too many rows for one product");
  const auto columns = static_cast<unsigned>(blocks_for(g.n, Tile::kRows) * split);
  GroupedGrid grid;
  grid.split = split;
  grid.wide = reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && g.out_row % 8 == 0;
  grid.settled = state(stream).settled == g.offsets;
  const Shape shape{dim3(columns, static_cast<unsigned>(tiles)), Tile::kThreads, Tile::kBytes,
                    static_cast<unsigned>(split)};
  const Status done = launch(stream, name, shape, kernel, weight_map, x_map, base, g, table, grid);
  state(stream).settled = g.offsets;
  return done;
}

template <class Tile>
Status launch_grouped(const Gemm& g, const void* const* weights, int split, const char* name, device::Stream stream) {
  if (g.groups <= 128) return launch_counted<Tile, 128>(g, weights, split, name, stream);
  return launch_counted<Tile, kMaxExperts>(g, weights, split, name, stream);
}

}  // namespace

Status gemm_grouped_tiles(const GroupedChoice& choice, const Gemm& g, const void* const* weights,
                          device::Stream stream) {
  constexpr const char *k32 = "gemm_wgmma_grouped_32", *k128 = "gemm_wgmma_grouped_128";
  switch (choice.kernel) {
    case GroupedKernel::kTiles32Three:
      return launch_grouped<WgmmaTile<32, 16, 3, 3>>(g, weights, choice.split, k32, stream);
    case GroupedKernel::kTiles32:
      return launch_grouped<WgmmaTile<32, 16, 5, 2>>(g, weights, choice.split, k32, stream);
    default:
      return launch_grouped<WgmmaTile<128, 16, 3, 2>>(g, weights, 1, k128, stream);
  }
}

}  // namespace tern::cuda
