// Products with one weight per expert on Hopper: rows sorted by expert, of which only the device knows how many there
// are. A block multiplies as many columns of tokens as its expert has, so that crowded experts cost what they must and
// the others what their weights cost.
#include <algorithm>

#include "cuda/gemm_hopper.cuh"
#include "cuda/tensor_map.h"

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

template <class Tile, int kCount>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    grouped_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                   const char* base, const Gemm g, const __grid_constant__ WeightTable<kCount> table, bool wide) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  let_next_start();
  wait_for_previous();  // which weights there are to read is a result of the launch before
  const RowTile tile = find_row_tile(g.offsets, g.groups, static_cast<int>(blockIdx.y), Tile::kTokens);
  if (tile.row0 < 0) return;
  const Ring<Tile> ring = make_ring<Tile>(memory, barriers);
  HopperWork work{tile.row0, int64_t{blockIdx.x} * (g.gated ? Tile::kRows / 2 : Tile::kRows), 0, 0,
                  static_cast<int>(g.k / Tile::kK)};
  work.count = static_cast<int>(min(int64_t{Tile::kTokens}, tile.row_end - tile.row0));
  float* const part = reinterpret_cast<float*>(ring.stages);
  if (threadIdx.x >= Tile::kWorkers) {
    if (threadIdx.x == Tile::kWorkers) {
      const auto plane = static_cast<int>((static_cast<const char*>(table.w[tile.group]) - base) / 128);
      const int boxes = (work.count + Tile::kBoxRows - 1) / Tile::kBoxRows;
      fill_ring(
          ring, work, boxes * Tile::kBoxRows * Tile::kK * 2,
          [&](char* to, uint64_t* barrier, int k) {
            load_weight(g, work.col0, to, [&](char* at, int row) {
              hopper::load_box(at, &weight_map, barrier, 0, row, plane + k, hopper::kEvictNormal);
            });
          },
          [&](char* to, uint64_t* barrier, int k) {
            for (int b = 0; b < boxes; ++b) {
              hopper::load_box(to + b * Tile::kBoxRows * Tile::kK * 2, &x_map, barrier, k * Tile::kK,
                               static_cast<int>(work.row0) + b * Tile::kBoxRows, hopper::kEvictLast);
            }
          });
    }
    __syncwarp();
  } else {
    multiply_some(ring, work, part);
  }
  __syncthreads();
  finish<Tile, 1>(g, work, part, 0, wide);
}

template <class Tile, int kCount>
Status launch_counted(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  WeightTable<kCount> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const auto* base = static_cast<const char*>(*std::min_element(weights, weights + g.groups));
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(tensor_map_anywhere(base, g.n, g.w_row, 64, &weight_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, Tile::kBoxRows, &x_map));
  const auto kernel = grouped_kernel<Tile, kCount>;
  if (Status s = allow_shared(name, kernel, Tile::kBytes); !s.ok()) return s;
  const int64_t tiles = blocks_for(g.rows, Tile::kTokens) + std::min<int64_t>(g.groups, g.rows);
  TERN_OP_CHECK("grouped_linear", tiles <= 65535, "there are too many rows for one product");
  const dim3 grid(static_cast<unsigned>(blocks_for(g.n, Tile::kRows)), static_cast<unsigned>(tiles));
  const bool wide = reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && g.out_row % 8 == 0;
  return launch(stream, name, {grid, Tile::kThreads, Tile::kBytes}, kernel, weight_map, x_map, base, g, table, wide);
}

template <class Tile>
Status launch_grouped(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  if (g.groups <= 128) return launch_counted<Tile, 128>(g, weights, name, stream);
  return launch_counted<Tile, kMaxExperts>(g, weights, name, stream);
}

}  // namespace

bool hopper_grouped_fits(const Gemm& g, const void* const* weights) {
  if (!mma_fits(g) || g.offsets == nullptr || g.k % 64 != 0 || g.w_row != g.k) return false;
  return std::all_of(weights, weights + g.groups,
                     [](const void* w) { return reinterpret_cast<uintptr_t>(w) % 128 == 0; });
}

Status gemm_hopper_grouped(const Gemm& g, const void* const* weights, device::Stream stream) {
  if (g.rows <= 8 * int64_t{g.groups}) {
    return launch_grouped<HopperTile<32, 16, 5, 2>>(g, weights, "gemm_hopper_grouped_32", stream);
  }
  return launch_grouped<HopperTile<128, 16, 3, 2>>(g, weights, "gemm_hopper_grouped_128", stream);
}

}  // namespace tern::cuda
