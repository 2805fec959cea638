// Products with one weight per expert and more than a few rows each. A block takes 256 rows of the weight and up to 160
// tokens of one expert, as many weights as it can hold for as few reads of the tokens: what passes from the
// second-level cache to the multiprocessors is the limit. One warp fills the ring through the copy engine, two
// warpgroups multiply; blocks stay and take one tile after the other, so that the ring is full again while results
// leave through shared memory. Where experts have many rows, two blocks share what they read of the weight, each with
// tokens of its own.
#pragma once

#include <algorithm>

#include "cuda/gemm/grouped/gemm_grouped_producer.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/tensor_map.h"
#include "cuda/ptx/wgmma.cuh"

namespace tern::cuda {

// The stage was read: its place in both blocks' rings is free as far as this warp is concerned.
template <class Tile>
__device__ __forceinline__ void release(WideShared<Tile>& sh, int s) {
  const int lane = threadIdx.x & 31;
  if constexpr (Tile::kCluster == 1) {
    if (lane == 0) hopper::barrier_arrive(sh.empty + s);
  } else {
    if (lane < Tile::kCluster) hopper::barrier_arrive_at(sh.empty + s, lane);
  }
}

// A warpgroup's 128 rows of the weight, in two halves.
template <int kN, class To, bool kGathered, class Tile>
__device__ __forceinline__ void multiply_wide(WideShared<Tile>& sh, const Gemm& g, const WideItem& item,
                                              const char* ring, char* staging, RingPlace& at) {
  const int half = static_cast<int>(threadIdx.x) / 128 - 1, steps = static_cast<int>(g.k / kK);
  // Not because of its value: else the registers of all loops would live for as long as the kernel.
  float acc[2][kN / 2] = {};
  int before = 0;
  for (int k = 0; k < steps; ++k) {
    const uint32_t stage = hopper::shared_address(ring) + at.s * Tile::kStage;
    const uint64_t a = hopper::tile_descriptor(stage + half * (128 * kRow));
    const uint64_t b = hopper::tile_descriptor(stage + Tile::kWeight);
    hopper::barrier_wait(sh.full + at.s, at.phase);
    if constexpr (kGathered) hopper::shared_to_engine();
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kK / 16; ++i) {
      hopper::Wgmma<kN>::run(acc[0], a + 2 * i, b + 2 * i, k + i > 0);
      hopper::Wgmma<kN>::run(acc[1], a + 2 * i + 64 * kRow / 16, b + 2 * i, k + i > 0);
    }
    hopper::wgmma_commit();
    if (k > 0) {
      hopper::wgmma_wait<1>();
      release(sh, before);
    }
    before = at.s;
    at.template next<Tile>();
  }
  hopper::wgmma_wait<0>();
  release(sh, before);
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  char* const mine = staging + (half * 4 + warp) * kStaging;
  const int unit = item.tile * (kRows / 16) + half * 8 + warp;
  epilogue<kN, To>(g, item.row0, item.count, unit * To::kColumns, acc[0], mine);
  epilogue<kN, To>(g, item.row0, item.count, (unit + 4) * To::kColumns, acc[1], mine);
}

template <class To, bool kGathered, class Tile>
__device__ __forceinline__ void multiply_item(WideShared<Tile>& sh, const Gemm& g, const WideItem& item,
                                              const char* ring, char* staging, RingPlace& at) {
#define TERN_WIDE(n)                           \
  case n:                                      \
    if constexpr (n * kGrain <= Tile::kTokens) \
    return multiply_wide<n * kGrain, To, kGathered>(sh, g, item, ring, staging, at)
  switch (item.wide / kGrain) {
    TERN_WIDE(1);
    TERN_WIDE(2);
    TERN_WIDE(3);
    TERN_WIDE(4);
    TERN_WIDE(5);
    TERN_WIDE(6);
    TERN_WIDE(7);
    TERN_WIDE(8);
    TERN_WIDE(9);
    TERN_WIDE(10);
    TERN_WIDE(11);
    TERN_WIDE(12);
    TERN_WIDE(13);
    TERN_WIDE(14);
    TERN_WIDE(15);
    TERN_WIDE(16);
    TERN_WIDE(17);
    TERN_WIDE(18);
    TERN_WIDE(19);
    TERN_WIDE(20);
  }
#undef TERN_WIDE
  static_assert(Tile::kTokens <= 20 * kGrain);
}

template <class Tile>
__device__ __forceinline__ void meet() {
  if constexpr (Tile::kCluster == 1) {
    __syncthreads();
  } else {
    hopper::cluster_sync();
  }
}

// kGathered: tokens lie apart (Gemm::from).
template <class Tile, class To, bool kGathered>
__global__ void __launch_bounds__(kThreads, 1)
    wide_kernel(const __grid_constant__ WideMaps maps, const char* base, const Gemm g,
                const __grid_constant__ WeightTable<kMostGroups> table, const WideGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ WideShared<Tile> sh;
  char* const ring = memory + (1024 - hopper::shared_address(memory) % 1024) % 1024;
  char* const staging = ring + Tile::kStage * Tile::kDepth;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kDepth; ++s) {
      hopper::barrier_init(sh.full + s, kGathered ? 1 + 128 : 1);
      hopper::barrier_init(sh.empty + s, kWarps * Tile::kCluster);
    }
    hopper::barrier_init_done();
    hopper::prefetch_map(&maps.weight);
    if constexpr (!kGathered) hopper::prefetch_map(&maps.x32), hopper::prefetch_map(&maps.x16);
  }
  if (kGathered && threadIdx.x == 0 && !grid.settled) prefetch_wide<Tile>(maps, base, g, table, grid);
  if (!grid.settled) wait_for_previous();
  order_experts(sh, g);
  meet<Tile>();
  if (threadIdx.x < 128) {
    hopper::registers_down<kGathered ? 56 : 40>();
    if constexpr (kGathered) {
      fill_gathered(sh, ring, maps, base, g, table, grid);
    } else if (threadIdx.x == 0) {
      fill_wide(sh, ring, maps, base, g, table, grid);
    }
  } else {
    hopper::registers_up<kGathered ? 224 : 232>();
    wait_for_previous();
    // After the wait: who starts now finds everything done that was launched before this kernel.
    let_next_start();
    RingPlace at;
    WideItem item;
    for (int round = 0; find_item(sh, g, grid, round, &item); ++round) {
      multiply_item<To, kGathered>(sh, g, item, ring, staging, at);
    }
  }
  __syncwarp();
  meet<Tile>();  // nobody leaves while others write into its ring
}

template <class Tile, class To, bool kGathered = false>
Status launch_wide(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  WeightTable<kMostGroups> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const auto* base = static_cast<const char*>(*std::min_element(weights, weights + g.groups));
  WideMaps maps{};
  TERN_RETURN_IF_ERROR(tensor_map_units(base, g.n, g.w_row, g.gated, kRows / 16 / Tile::kCluster, 1, &maps.weight));
  if constexpr (!kGathered) {
    TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, 2 * kBox, &maps.x32));
    TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, kBox, &maps.x16));
  }
  const auto kernel = wide_kernel<Tile, To, kGathered>;
  const WideGrid grid{static_cast<int>(blocks_for(g.n, kRows)), state(stream).settled == g.offsets};
  const auto blocks = static_cast<unsigned>(state(stream).multiprocessors / Tile::kCluster * Tile::kCluster);
  const Status done = launch(stream, name, {blocks, kThreads, Tile::kBytes, static_cast<unsigned>(Tile::kCluster)},
                             kernel, maps, base, g, table, grid);
  state(stream).settled = g.offsets;
  return done;
}

}  // namespace tern::cuda
