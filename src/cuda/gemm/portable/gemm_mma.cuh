// The tensor-core product of one tile shape. k advances in steps of 16 in one chain per value, whatever the tile: the
// result of a row depends neither on the other rows nor on the tile that was chosen.
#pragma once

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"
#include "ops/op_check.h"

namespace tern::cuda {

template <int kM, int kN, int kWarpM, int kWarpN, int kStages>
struct MmaTile {
  static constexpr int kK = 32;        // values of k per stage
  static constexpr int kRow = kK + 8;  // 80 bytes apart: eight rows fall into different banks
  static constexpr int kWarps = (kM / kWarpM) * (kN / kWarpN), kThreads = 32 * kWarps;
  static constexpr int kStage = (kM + kN) * kRow;  // elements
  static constexpr size_t kBytes = sizeof(bf) * kStage * kStages;
  static constexpr int kRowTile = kM, kColTile = kN, kWarpRows = kWarpM, kWarpCols = kWarpN, kDepth = kStages;
};

// What one block computes: rows [row0, row_end) of x with weight `group`.
struct RowTile {
  int group;
  int64_t row0, row_end;
};

// The tile that is number `index` over all experts; row0 < 0 when there is none. One warp's work, result for all lanes.
__device__ inline RowTile find_tile(const int32_t* offsets, int groups, int64_t index, int rows_per_tile) {
  const int lane = threadIdx.x & 31;
  for (int e0 = 0; e0 < groups; e0 += 32) {
    const int e = e0 + lane;
    const int begin = e < groups ? offsets[e] : 0, end = e < groups ? offsets[e + 1] : 0;
    const int tiles = (end - begin + rows_per_tile - 1) / rows_per_tile;
    int sum = tiles;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += other;
    }
    const bool mine = index < sum && index >= sum - tiles;
    const unsigned who = __ballot_sync(0xffffffffu, mine);
    if (who != 0) {
      const int source = __ffs(static_cast<int>(who)) - 1;
      const int first = begin + (static_cast<int>(index) - (sum - tiles)) * rows_per_tile;
      return {e0 + source, __shfl_sync(0xffffffffu, first, source), __shfl_sync(0xffffffffu, end, source)};
    }
    index -= __shfl_sync(0xffffffffu, sum, 31);
  }
  return {0, -1, -1};
}

template <class Tile>
__device__ void load_stage(const Gemm& g, const bf* x, const bf* w, int64_t row0, int64_t row_end, int64_t col0,
                           int64_t k0, bf* stage) {
  constexpr int kChunks = Tile::kK / 8;
  for (int i = threadIdx.x; i < (Tile::kRowTile + Tile::kColTile) * kChunks; i += Tile::kThreads) {
    const int r = i / kChunks;
    const int64_t k = k0 + i % kChunks * 8;
    const bool is_x = r < Tile::kRowTile;
    const int64_t row = is_x ? row0 + r : col0 + r - Tile::kRowTile, end = is_x ? row_end : g.n;
    const int64_t left = row < end ? (is_x ? g.k : g.w_row) - k : 0;
    const bf* from = is_x ? x + row * g.x_row + k : w + row * g.w_row + k;
    const int bytes = left <= 0 ? 0 : left >= 8 ? 16 : static_cast<int>(left) * 2;
    copy_async(stage + r * Tile::kRow + i % kChunks * 8, bytes == 0 ? static_cast<const void*>(w) : from, bytes);
  }
}

template <class Tile>
__device__ void multiply_stage(const bf* stage, int warp_row, int warp_col,
                               float (&acc)[Tile::kWarpRows / 16][Tile::kWarpCols / 8][4]) {
  const int lane = threadIdx.x & 31;
  const bf* a_rows = stage + (warp_row + lane % 16) * Tile::kRow + lane / 16 * 8;
  const bf* b_rows = stage + (Tile::kRowTile + warp_col + lane % 8) * Tile::kRow + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < Tile::kK; k += 16) {
    uint32_t a[Tile::kWarpRows / 16][4];
#pragma unroll
    for (int i = 0; i < Tile::kWarpRows / 16; ++i) load_matrix4(a[i], a_rows + i * 16 * Tile::kRow + k);
#pragma unroll
    for (int j = 0; j < Tile::kWarpCols / 8; ++j) {
      uint32_t b[2];
      load_matrix2(b, b_rows + j * 8 * Tile::kRow + k);
#pragma unroll
      for (int i = 0; i < Tile::kWarpRows / 16; ++i) mma(acc[i][j], a[i], b);
    }
  }
}

__device__ inline void store_value(const Gemm& g, int64_t offset, int64_t col, float v) {
  if (g.bias != nullptr) v += g.bias[col];
  if (g.out_bf16) {
    static_cast<bf*>(g.out)[offset + col] = from_float<bf>(v);
  } else {
    static_cast<float*>(g.out)[offset + col] = v;
  }
}

// Which rows and which weight this block has.
template <class Tile>
__device__ RowTile tile_of_block(const Gemm& g) {
  if (g.offsets != nullptr) return find_tile(g.offsets, g.groups, blockIdx.y, Tile::kRowTile);
  const int64_t row0 = int64_t{blockIdx.y} * Tile::kRowTile;
  return {static_cast<int>(blockIdx.z), row0, g.rows};
}

template <class Tile, int kCount>
__global__ void __launch_bounds__(Tile::kThreads)
    mma_kernel(const Gemm g, const __grid_constant__ WeightTable<kCount> table) {
  extern __shared__ __align__(16) char memory[];
  bf* const stages = reinterpret_cast<bf*>(memory);
  let_next_start();
  wait_for_previous();
  const RowTile tile = tile_of_block<Tile>(g);
  if (tile.row0 < 0) return;
  const int64_t head = g.heads ? tile.group : 0, col0 = int64_t{blockIdx.x} * Tile::kColTile;
  const bf* x = static_cast<const bf*>(g.x) + head * g.x_head;
  const bf* w = static_cast<const bf*>(table.w[kCount == 1 ? 0 : tile.group]);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  constexpr int kAcross = Tile::kColTile / Tile::kWarpCols;
  const int warp_row = warp / kAcross * Tile::kWarpRows, warp_col = warp % kAcross * Tile::kWarpCols;
  float acc[Tile::kWarpRows / 16][Tile::kWarpCols / 8][4] = {};
  const int64_t steps = (g.k + Tile::kK - 1) / Tile::kK;
#pragma unroll
  for (int s = 0; s < Tile::kDepth - 1; ++s) {
    if (s < steps) load_stage<Tile>(g, x, w, tile.row0, tile.row_end, col0, s * Tile::kK, stages + s * Tile::kStage);
    copy_commit();
  }
  for (int64_t step = 0; step < steps; ++step) {
    copy_wait<Tile::kDepth - 2>();
    __syncthreads();
    const int64_t next = step + Tile::kDepth - 1;
    if (next < steps) {
      load_stage<Tile>(g, x, w, tile.row0, tile.row_end, col0, next * Tile::kK,
                       stages + next % Tile::kDepth * Tile::kStage);
    }
    copy_commit();
    multiply_stage<Tile>(stages + step % Tile::kDepth * Tile::kStage, warp_row, warp_col, acc);
  }
#pragma unroll
  for (int i = 0; i < Tile::kWarpRows / 16; ++i) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int64_t row = tile.row0 + warp_row + i * 16 + lane / 4 + v / 2 * 8;
      if (row >= tile.row_end) continue;
      const int64_t offset = row * g.out_row + head * g.out_head;
#pragma unroll
      for (int j = 0; j < Tile::kWarpCols / 8; ++j) {
        const int64_t col = col0 + warp_col + j * 8 + lane % 4 * 2 + v % 2;
        if (col < g.n) store_value(g, offset, col, acc[i][j][v]);
      }
    }
  }
}

template <class Tile, int kCount>
Status launch_tile(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  WeightTable<kCount> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const int64_t tiles = g.offsets == nullptr
                            ? blocks_for(g.rows, Tile::kRowTile)
                            : blocks_for(g.rows, Tile::kRowTile) + (g.groups < g.rows ? g.groups : g.rows);
  const dim3 grid(static_cast<unsigned>(blocks_for(g.n, Tile::kColTile)), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(g.heads ? g.groups : 1));
  TERN_OP_CHECK("linear", tiles <= 65535, "there are too many rows for one product");
  const auto kernel = mma_kernel<Tile, kCount>;
  return launch(stream, name, {grid, Tile::kThreads, Tile::kBytes}, kernel, g, table);
}

template <class Tile>
Status launch_mma(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  if (g.groups == 1) return launch_tile<Tile, 1>(g, weights, name, stream);
  if (g.groups <= 128) return launch_tile<Tile, 128>(g, weights, name, stream);
  return launch_tile<Tile, kMaxExperts>(g, weights, name, stream);
}

}  // namespace tern::cuda
