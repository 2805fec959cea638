// The kernel of codes_wgmma.cuh and how it is launched.
#pragma once

#include <algorithm>

#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/gemm/codes/sm90/codes_push.cuh"
#include "cuda/gemm/codes/sm90/codes_wgmma.cuh"

namespace tern::cuda {

// Adds the parts of the cluster's blocks in their order; every block writes its share of the tile, which has `columns`
// results; with a gate those of up lie as many further on. As add_parts (gemm/sm90), whose tiles have a fixed width.
template <class T, int kSplit, bool kGated>
__device__ void add_codes_parts(const Gemm& g, const HopperWork& work, const float* part, int rank, bool wide,
                                const float* scales, int columns) {
  constexpr int kSides = kGated ? 2 : 1, kLanes = T::kRows / 4 / kSides, kStep = kSplit * T::kWorkers / kLanes;
  constexpr int kBatch = kSplit * kSides >= 8 ? 1 : kSplit * kSides >= 4 ? 2 : 4;
  const int lane = threadIdx.x % kLanes;
  const int64_t n = g.n / kSides, col = work.col0 + 4 * lane;
  if (threadIdx.x >= T::kWorkers || 4 * lane >= columns || col >= n) return;
  float4 bias[kSides] = {};
#pragma unroll
  for (int h = 0; h < kSides; ++h) bias[h] = add_bias(g, h * n + col, bias[h]);
  for (int t = (rank * T::kWorkers + static_cast<int>(threadIdx.x)) / kLanes; t < work.count; t += kStep * kBatch) {
    float4 v[kBatch][kSides][kSplit];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (t + b * kStep >= work.count) break;
#pragma unroll
      for (int h = 0; h < kSides; ++h) {
        const float* at = part + (t + b * kStep) * T::kPartRow + 4 * lane + h * columns;
#pragma unroll
        for (int s = 0; s < kSplit; ++s)
          v[b][h][s] = kSplit == 1 ? *reinterpret_cast<const float4*>(at) : hopper::load_cluster(at, s);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int token = t + b * kStep;
      if (token >= work.count) break;
      float4 sum[kSides];
#pragma unroll
      for (int h = 0; h < kSides; ++h) {
        sum[h] = v[b][h][0];
#pragma unroll
        for (int s = 1; s < kSplit; ++s) sum[h] = add_four(sum[h], v[b][h][s]);
        if constexpr (T::kTokens <= kNormFusedRows) sum[h] = scale_four(g, scales, token, sum[h]);
        sum[h] = add_four(sum[h], bias[h]);
      }
      float4 out = sum[0];
      if constexpr (kGated) {
        const float4 gate = sum[0], up = sum[1];
        out = make_float4(silu(gate.x) * up.x, silu(gate.y) * up.y, silu(gate.z) * up.z, silu(gate.w) * up.w);
      }
      store_four(g, wide, work.row0 + token, col, n, out);
    }
  }
}

template <class T, int kSplit>
__device__ void finish_codes(const Gemm& g, const HopperWork& work, const float* part, int rank, const CodesGrid& grid,
                             const float* scales) {
  if constexpr (T::kTokens <= kNormFusedRows) {
    if (g.after.residual != nullptr) return epilogue_parts<T, kSplit>(g, work, part, rank, scales);
  }
  const int columns = grid.stripes * kStripe;
  if (g.gated) return add_codes_parts<T, kSplit, true>(g, work, part, rank, grid.wide, scales, columns / 2);
  add_codes_parts<T, kSplit, false>(g, work, part, rank, grid.wide, scales, columns);
}

template <class T>
__device__ CodesRing<T> make_codes_ring(char* memory, uint64_t* barriers, int depth) {
  const uint32_t at = hopper::shared_address(memory);
  const CodesRing<T> ring{memory + ((at + 1023) / 1024 * 1024 - at), barriers, barriers + T::kMostDepth, depth};
  if (threadIdx.x == 0) {
    for (int s = 0; s < depth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, T::kWorkers / 32);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  return ring;
}

// The scales of a warp's rows r and r + 8.
template <class T>
__device__ __forceinline__ float2 row_scales(const Gemm& g, const CodesGrid& grid, const HopperWork& work,
                                             const char* w) {
  const int stripe = tile_stripe(g, grid, work, static_cast<int>(threadIdx.x / 32)), r = (threadIdx.x & 31) / 4;
  if (T::kSpan > 0 || stripe >= g.codes.stripes()) return make_float2(1.0f, 1.0f);
  const float* at = group_of(g.codes, w + stripe * g.codes.stripe_bytes(), 0);
  return make_float2(at[r], at[r + 8]);
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    codes_wgmma_kernel(const __grid_constant__ CodesMaps maps, const char* w, const Gemm g, const CodesGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * T::kMostDepth];
  __shared__ float scales[T::kTokens];
  let_next_start();
  const CodesRing<T> ring = make_codes_ring<T>(memory, barriers, grid.depth);
  const int rank = grid.split == 1 ? 0 : hopper::cluster_rank();
  const HopperWork work = codes_work<T>(g, grid, rank);
  float* const part = reinterpret_cast<float*>(ring.stages);
  if (threadIdx.x >= T::kWorkers) {
    if (threadIdx.x == T::kWorkers) fill_codes<T>(g, grid, work, ring, maps);
    __syncwarp();
  } else {
    if (threadIdx.x < 32) bring_parameters(g, grid);
    const float2 scale = row_scales<T>(g, grid, work, w);
    if constexpr (T::kTokens <= kNormFusedRows) begin_norm<T>(g, work, grid.split, rank, scales);
    float acc[T::kTokens / 2];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
    const WarpStripes stripes{warp, warp, false, false};
    const auto done = [&](int, int s) {
      if (lane == 0) hopper::barrier_arrive(ring.empty + s);
    };
    if constexpr (T::kSpan == 0) {
      multiply_rows<T>(ring, stripes, work.last - work.first, acc, done);
    } else {
      const int own = scales_at<T>(g, grid);
      multiply_spans<T>(g.codes, ring, stripes, make_int2(own, own), work.last - work.first, acc, done);
    }
    leave_part<T>(work, acc, scale, part);
  }
  if (grid.split == 1) {
    __syncthreads();
    return finish_codes<T, 1>(g, work, part, 0, grid, scales);
  }
  hopper::cluster_sync();
  if (grid.split == 2) {
    finish_codes<T, 2>(g, work, part, rank, grid, scales);
  } else if (grid.split == 4) {
    finish_codes<T, 4>(g, work, part, rank, grid, scales);
  } else {
    finish_codes<T, 8>(g, work, part, rank, grid, scales);
  }
  hopper::cluster_sync();  // nobody leaves while others read
}

template <class T>
Status launch_codes_wgmma(const Gemm& g, const void* weight, const CodesWgmma& tile, const KernelNames& names,
                          device::Stream stream) {
  CodesGrid grid(g, tile.split);
  grid.stripes = tile.stripes;
  grid.k_tiles = static_cast<int>(blocks_for(g.k, kCodesStep));
  grid.weight_tiles = static_cast<int>(tile.tiles(g));
  grid.row_tiles = static_cast<int>(blocks_for(g.rows, T::kTokens));
  grid.weight_policy = grid.row_tiles == 1 ? hopper::kEvictFirst : hopper::kEvictNormal;
  grid.groups = T::kSpan == 0 ? 0 : kCodesStep / g.codes.group;
  const int box = token_box(g.rows, T::kTokens);
  grid.bytes = grid.stripes * (2 * T::kUnit + grid.groups * 64) + 2 * box * 128;
  // No more room than the steps need: blocks of the next kernel have their weights while this one runs.
  grid.depth = std::max(2, std::min(T::kDepth, static_cast<int>(blocks_for(grid.k_tiles, tile.split))));
  CodesMaps maps{};
  TERN_RETURN_IF_ERROR(codes_maps<T>(g, weight, g.gated ? grid.stripes / 2 : grid.stripes, grid.groups, box, &maps));
  const size_t bytes = 1024 + static_cast<size_t>(std::max(grid.depth * T::kStage, T::kPart));
  const auto blocks = static_cast<unsigned>(grid.weight_tiles * grid.row_tiles * tile.split);
  return launch(stream, names.of(g), {blocks, T::kThreads, bytes, static_cast<unsigned>(tile.split)},
                codes_wgmma_kernel<T>, maps, static_cast<const char*>(weight), g, grid);
}

inline constexpr KernelNames kCodesWgmma16{"codes_wgmma_16", "codes_wgmma_16_normed"},
    kCodesWgmma32{"codes_wgmma_32", "codes_wgmma_32_normed"}, kCodesWgmma64{"codes_wgmma_64", "codes_wgmma_64_normed"},
    kCodesWgmma128{"codes_wgmma_128", nullptr};

template <CodeKind kKind, int kSpan>
Status launch_codes_wgmma(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream) {
  if (tile.push) return launch_codes_push<kKind, kSpan>(g, tile, weight, stream);
  if (tile.rows == 64) {
    if (tile.tokens == 16)
      return launch_codes_wgmma<CodesTile<kKind, kSpan, 16, 1, 4>>(g, weight, tile, kCodesWgmma16, stream);
    if (tile.tokens == 32)
      return launch_codes_wgmma<CodesTile<kKind, kSpan, 32, 1, 4>>(g, weight, tile, kCodesWgmma32, stream);
    return launch_codes_wgmma<CodesTile<kKind, kSpan, 64, 1, 3>>(g, weight, tile, kCodesWgmma64, stream);
  }
  if (tile.tokens == 16)
    return launch_codes_wgmma<CodesTile<kKind, kSpan, 16, 2, 3>>(g, weight, tile, kCodesWgmma16, stream);
  if (tile.tokens == 32)
    return launch_codes_wgmma<CodesTile<kKind, kSpan, 32, 2, 2>>(g, weight, tile, kCodesWgmma32, stream);
  if (tile.tokens == 64)
    return launch_codes_wgmma<CodesTile<kKind, kSpan, 64, 2, 2>>(g, weight, tile, kCodesWgmma64, stream);
  return launch_codes_wgmma<CodesTile<kKind, kSpan, 128, 2, 1>>(g, weight, tile, kCodesWgmma128, stream);
}

}  // namespace tern::cuda
