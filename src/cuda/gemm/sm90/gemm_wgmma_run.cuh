// The kernel of gemm_wgmma.cuh and how it is launched.
#pragma once

#include "cuda/gemm/epilogues/norm_epilogue.cuh"
#include "cuda/gemm/sm90/gemm_wgmma.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {

// Tiles of a product, and in which order blocks take them: up to kBand tiles of rows side by side, so that the weight
// tiles of a wave are few enough to stay in the cache while all of its rows pass.
struct HopperGrid {
  static constexpr int kBand = 8;
  int weight_tiles = 0, row_tiles = 0, k_tiles;
  int split;        // blocks of a cluster, which share the k of a tile
  int x_bytes = 0;  // of a stage
  bool wide;        // rows of out begin at multiples of 16 bytes
  uint64_t weight_policy = 0;
  HopperGrid(const Gemm& g, int parts)
      : k_tiles(static_cast<int>(blocks_for(g.k, 64))),
        split(parts),
        wide(reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && g.out_row % 8 == 0) {}
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

// Before the first product: a norm's part that waits for memory; of the scales those of this block's share of the tile.
// All workers.
template <class Tile>
__device__ __forceinline__ void begin_norm(const Gemm& g, const HopperWork& work, int split, int rank, float* scales) {
  if (g.after.residual != nullptr) bring_norm_weight(g.after, work.col0 + threadIdx.x % (Tile::kRows / 4) * 4);
  if (g.after.residual == nullptr && g.before.squares == nullptr) return;
  wait_for_previous();
  const int step = g.gated ? 16 : 8;  // tokens that the block's threads finish at a time
  if (g.before.squares == nullptr || rank * step >= Tile::kTokens) return;
  NormScales<2> own;
  own.begin(g, work.row0, max(Tile::kTokens / split, min(step, Tile::kTokens)), Tile::kWorkers,
            [&](int u) { return (u / step * split + rank) * step + u % step; });
  own.end(g, work.row0, scales);
}

// As add_parts, with a norm behind the product: neighbouring lanes have all columns of a token.
template <class Tile, int kSplit>
__device__ void epilogue_parts(const Gemm& g, const HopperWork& work, const float* part, int rank,
                               const float* scales) {
  constexpr int kLanes = Tile::kRows / 4, kBatch = kSplit >= 4 ? 1 : kSplit == 2 ? 2 : 4;
  constexpr int kStep = kSplit * Tile::kWorkers / kLanes;
  static_assert(32 % kLanes == 0);
  if (threadIdx.x >= Tile::kWorkers) return;
  const NormAfter& a = g.after;
  const int lane = threadIdx.x % kLanes, first = (rank * Tile::kWorkers + static_cast<int>(threadIdx.x)) / kLanes;
  const int64_t col = work.col0 + 4 * lane;
  const float4 w = norm_weight_four(a, col);
  const int behind = first % (32 / kLanes);  // the warp's first token: all of its lanes go as far
  for (int t = first; t - behind < work.count; t += kStep * kBatch) {
    float4 v[kBatch][kSplit], r[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int token = t + b * kStep;
      if (token >= work.count) break;
      r[b] = *reinterpret_cast<const float4*>(a.residual + (work.row0 + token) * a.residual_row + col);
      const float* at = part + token * Tile::kPartRow + 4 * lane;
#pragma unroll
      for (int s = 0; s < kSplit; ++s) {
        v[b][s] = kSplit == 1 ? *reinterpret_cast<const float4*>(at) : hopper::load_cluster(at, s);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int token = t + b * kStep;
      if (token - behind >= work.count) break;
      float square = 0.0f;
      const int64_t row = work.row0 + token;
      if (token < work.count) {
        float4 sum = v[b][0];
#pragma unroll
        for (int s = 1; s < kSplit; ++s) sum = add_four(sum, v[b][s]);
        sum = add_four(scale_four(g, scales, token, sum), r[b]);
        *reinterpret_cast<float4*>(a.residual + row * a.residual_row + col) = sum;
        *reinterpret_cast<uint2*>(static_cast<bf*>(a.x) + row * a.x_row + col) =
            make_uint2(pack2(sum.x * w.x, sum.y * w.y), pack2(sum.z * w.z, sum.w * w.w));
        square = (sum.x * sum.x + sum.y * sum.y) + (sum.z * sum.z + sum.w * sum.w);
      }
#pragma unroll
      for (int d = kLanes / 2; d > 0; d /= 2) square += __shfl_xor_sync(0xffffffffu, square, d);
      if (lane == 0 && token < work.count) a.squares[row * a.parts + work.col0 / Tile::kRows] = square;
    }
  }
}

// Of few rows with what norms ask for.
template <class Tile, int kSplit>
__device__ void finish_tile(const Gemm& g, const HopperWork& work, const float* part, int rank, bool wide,
                            const float* scales) {
  if constexpr (Tile::kTokens <= kNormFusedRows && (Tile::kRows == 128 || Tile::kRows == kSingleWaveWidth)) {
    if (g.after.residual != nullptr) return epilogue_parts<Tile, kSplit>(g, work, part, rank, scales);
  }
  finish<Tile, kSplit, Tile::kTokens <= kNormFusedRows>(g, work, part, rank, wide, scales);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    wgmma_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                 const Gemm g, const HopperGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  __shared__ float scales[Tile::kTokens];
  let_next_start();
  const Ring<Tile> ring = make_ring<Tile>(memory, barriers);
  const int rank = Tile::kWhole || grid.split == 1 ? 0 : hopper::cluster_rank();
  const HopperWork work = work_of<Tile>(g, grid, rank);
  float* const part = reinterpret_cast<float*>(ring.stages);
  if (threadIdx.x >= Tile::kWorkers) {
    if (threadIdx.x == Tile::kWorkers) {
      hopper::prefetch_map(&x_map);
      fill_ring(
          ring, work, grid.x_bytes,
          [&](char* to, uint64_t* barrier, int k) {
            load_weight<Tile>(g, work.col0, to, [&](char* at, int row) {
              hopper::load_box(at, &weight_map, barrier, k * Tile::kK, row, grid.weight_policy);
            });
          },
          [&](char* to, uint64_t* barrier, int k) {
            hopper::load_box(to, &x_map, barrier, k * Tile::kK, static_cast<int>(work.row0), hopper::kEvictLast);
          });
    }
    __syncwarp();
  } else {
    if (threadIdx.x < 32) bring_parameters(g, grid);
    if constexpr (Tile::kTokens <= kNormFusedRows) begin_norm<Tile>(g, work, grid.split, rank, scales);
    multiply<Tile::kTokens>(ring, work, part);
  }
  if (Tile::kWhole || grid.split == 1) {
    __syncthreads();
    finish_tile<Tile, 1>(g, work, part, 0, grid.wide, scales);
    return;
  }
  if constexpr (!Tile::kWhole) {
    hopper::cluster_sync();
    if (grid.split == 2) {
      finish_tile<Tile, 2>(g, work, part, rank, grid.wide, scales);
    } else if (grid.split == 4) {
      finish_tile<Tile, 4>(g, work, part, rank, grid.wide, scales);
    } else {
      finish_tile<Tile, 8>(g, work, part, rank, grid.wide, scales);
    }
    hopper::cluster_sync();  // nobody leaves while others read
  }
}

template <class Tile>
Status launch_hopper(const Gemm& g, const void* weight, HopperGrid grid, const KernelNames& names,
                     device::Stream stream) {
  grid.weight_tiles = static_cast<int>(blocks_for(g.n, Tile::kRows));
  grid.row_tiles = static_cast<int>(blocks_for(g.rows, Tile::kTokens));
  grid.weight_policy = grid.row_tiles == 1 ? hopper::kEvictFirst : hopper::kEvictNormal;
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(tensor_map(weight, g.n, g.k, g.w_row, weight_box<Tile>(g), &weight_map));
  const int box = token_box(g.rows, Tile::kTokens);
  grid.x_bytes = box * Tile::kK * 2;
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, box, &x_map));
  const auto blocks = static_cast<unsigned>(grid.weight_tiles * grid.row_tiles * grid.split);
  const Shape shape{blocks, Tile::kThreads, Tile::kBytes, static_cast<unsigned>(grid.split)};
  return launch(stream, names.of(g), shape, wgmma_kernel<Tile>, weight_map, x_map, g, grid);
}

}  // namespace tern::cuda
