// Products on Hopper in deterministic mode whose k is cut: 128 rows of the weight are the tall side of wgmma, up to 256
// tokens the wide one. Cut and sums are those of gemm_sm90.cu, but the parts of a tile are blocks like any others, not
// a cluster: clusters of large blocks leave many multiprocessors idle. Parts are left in memory; the blocks of a tile
// wait for each other and add them up, each for some tokens. Jobs are taken in order, so what a block waits for is
// never behind it: blocks that could not all run at once would still end, unless others that wait as these do run
// beside them (one stream of a device has such kernels).
//
// With more than 64 tokens two blocks of a cluster have neighbouring tiles of the weight and read every token once.
#pragma once

#include "cuda/gemm.h"
#include "cuda/hopper.cuh"
#include "cuda/kernel_util.cuh"
#include "cuda/launch.cuh"
#include "cuda/wgmma.cuh"

namespace tern::cuda {

template <int kTokens_, int kDepth_>
struct PartsTile {
  static constexpr int kTokens = kTokens_, kDepth = kDepth_, kPair = kTokens > 64 ? 2 : 1;
  // With 256 tokens the sums need registers that other warpgroups have to spare.
  static constexpr bool kMoves = kTokens > 128;
  static constexpr int kRows = 128, kK = 64, kWorkers = 256, kThreads = kWorkers + (kMoves ? 128 : 32);
  static constexpr int kWeight = kRows * kK * 2, kX = kTokens * kK * 2, kStage = kWeight + kX;  // bytes
  static constexpr int kQuads = kTokens / 8;                                                    // sums of a thread / 4
  static constexpr size_t kBytes = 1024 + kDepth * kStage;
  using Sums = float[kTokens / 2];
};

// Jobs are numbered part by part, then along the weight, then by rows.
struct PartsGrid {
  int weight_tiles, row_tiles, k_tiles, split;
  int weight_places;  // weight_tiles, rounded up to whole clusters
  float4* parts;      // [jobs][kPair][kQuads][kWorkers]
  uint32_t* tickets;  // [row_tiles][weight_places]: parts that are there, and 65536 for each that was read; then zero
};

struct PartsJob {
  int weight_tile, row_tile, part, first, last;  // k tiles [first, last)
};

template <class Tile>
__device__ __forceinline__ int parts_jobs(const PartsGrid& grid) {
  return grid.weight_places / Tile::kPair * grid.row_tiles * grid.split;
}

template <class Tile>
__device__ __forceinline__ PartsJob parts_job(const PartsGrid& grid, int index, int rank) {
  PartsJob j;
  const int tile = index / grid.split, across = grid.weight_places / Tile::kPair;
  j.part = index - tile * grid.split;
  j.row_tile = tile / across, j.weight_tile = tile % across * Tile::kPair + rank;
  j.first = j.part * grid.k_tiles / grid.split, j.last = (j.part + 1) * grid.k_tiles / grid.split;
  return j;
}

template <class Tile>
struct PartsRing {
  char* stages;
  uint64_t *full, *empty;
  __device__ char* weight(int s) const { return stages + s * Tile::kStage; }
  __device__ char* x(int s) const { return weight(s) + Tile::kWeight; }
};

// What goes into stage s of the ring.
template <class Tile>
struct PartsLoads {
  const PartsRing<Tile>& ring;
  const CUtensorMap *weight_map, *x_map;
  int rank;
  __device__ void weight(int s, const PartsJob& j, int k) const {
    hopper::barrier_expect(ring.full + s, Tile::kStage);
    hopper::load_box(ring.weight(s), weight_map, ring.full + s, k * Tile::kK, j.weight_tile * Tile::kRows,
                     hopper::kEvictFirst);
  }
  // Each of two blocks brings half of the tokens to both.
  __device__ void x(int s, const PartsJob& j, int k) const {
    constexpr int kBox = Tile::kTokens / Tile::kPair;
    char* to = ring.x(s) + rank * kBox * Tile::kK * 2;
    const int token = j.row_tile * Tile::kTokens + rank * kBox;
    if constexpr (Tile::kPair > 1) {
      hopper::load_box_all(to, x_map, ring.full + s, k * Tile::kK, token, uint16_t{3}, hopper::kEvictLast);
    } else {
      hopper::load_box(to, x_map, ring.full + s, k * Tile::kK, token, hopper::kEvictLast);
    }
  }
};

// One thread of a block.
template <class Tile>
__device__ void fill_parts(const PartsLoads<Tile>& loads, const PartsGrid& grid) {
  const int jobs = parts_jobs<Tile>(grid), step = static_cast<int>(gridDim.x) / Tile::kPair;
  int i = 0;
  for (int index = blockIdx.x / Tile::kPair; index < jobs; index += step) {
    const PartsJob j = parts_job<Tile>(grid, index, loads.rank);
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

// The place may be filled again, in both blocks if there are two.
template <class Tile>
__device__ __forceinline__ void release_parts(const PartsRing<Tile>& ring, int i) {
  const int lane = threadIdx.x & 31;
  if constexpr (Tile::kPair > 1) {
    if (lane < Tile::kPair) hopper::barrier_arrive_at(ring.empty + i % Tile::kDepth, lane);
  } else {
    if (lane == 0) hopper::barrier_arrive(ring.empty + i % Tile::kDepth);
  }
}

// Two rows of the weight and, of every quad, two tokens: what a thread holds of a tile.
template <class Tile, class Out>
struct PartsOut {
  Out* to;  // of the first quad
  int64_t row;
  int count;  // of tokens, from the thread's first one
  bool first, second;
  float bias[2];
  __device__ PartsOut(const Gemm& g, const PartsJob& j) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int64_t col = int64_t{j.weight_tile} * Tile::kRows + warp * 16 + lane / 4;
    const int64_t token = int64_t{j.row_tile} * Tile::kTokens + lane % 4 * 2;
    to = static_cast<Out*>(g.out) + token * g.out_row + col, row = g.out_row;
    count = static_cast<int>(min(int64_t{Tile::kTokens}, g.rows - token));
    first = col < g.n, second = col + 8 < g.n;
    // What is added to nothing must not change its sign.
    bias[0] = g.bias != nullptr && first ? g.bias[col] : -0.0f;
    bias[1] = g.bias != nullptr && second ? g.bias[col + 8] : -0.0f;
  }
  __device__ __forceinline__ void put(int quad, float4 v) const {
    Out* at = to + quad * 8 * row;
    const bool one = quad * 8 < count, two = quad * 8 + 1 < count;
    v.x += bias[0], v.y += bias[0], v.z += bias[1], v.w += bias[1];
    if (one && first) at[0] = from_float<Out>(v.x);
    if (two && first) at[row] = from_float<Out>(v.y);
    if (one && second) at[8] = from_float<Out>(v.z);
    if (two && second) at[row + 8] = from_float<Out>(v.w);
  }
};

// Quads [begin, end) of a tile, whose parts lie `next` apart from `parts` on. Several are on their way together.
template <class Tile, class Out>
__device__ __forceinline__ void add_up(const PartsOut<Tile, Out>& out, const float4* parts, int64_t next, int split,
                                       int begin, int end) {
  constexpr int kTogether = Tile::kQuads < 2 ? 1 : 2;
  for (int q0 = begin; q0 < end; q0 += kTogether) {
    float4 sum[kTogether];
    for (int p0 = 0; p0 < split; p0 += 4) {
      float4 v[kTogether][4];
#pragma unroll
      for (int i = 0; i < 4 * kTogether; ++i) {
        const int q = q0 + i / 4, p = p0 + i % 4;
        if (q < end && p < split) v[i / 4][i % 4] = __ldcg(parts + p * next + q * Tile::kWorkers + threadIdx.x);
      }
#pragma unroll
      for (int i = 0; i < 4 * kTogether; ++i) {
        const float4& y = v[i / 4][i % 4];
        float4& to = sum[i / 4];
        if (p0 + i % 4 == 0) {
          to = y;
        } else if (p0 + i % 4 < split) {
          to.x += y.x, to.y += y.y, to.z += y.z, to.w += y.w;
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kTogether; ++q) {
      if (q0 + q < end) out.put(q0 + q, sum[q]);
    }
  }
}

// Leaves a part, and with the other blocks of the tile makes the result of all of them.
template <class Tile, class Out>
__device__ __forceinline__ void finish_part(const Gemm& g, const PartsGrid& grid, const PartsJob& j, int index,
                                            int rank, const typename Tile::Sums& acc) {
  constexpr int kSize = Tile::kQuads * Tile::kWorkers;
  float4* mine = grid.parts + int64_t{index * Tile::kPair + rank} * kSize + threadIdx.x;
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    mine[q * Tile::kWorkers] = make_float4(acc[4 * q], acc[4 * q + 1], acc[4 * q + 2], acc[4 * q + 3]);
  }
  const int begin = j.part * Tile::kQuads / grid.split, end = (j.part + 1) * Tile::kQuads / grid.split;
  uint32_t* ticket = grid.tickets + grid.weight_places * j.row_tile + j.weight_tile;
  const uint32_t all = static_cast<uint32_t>(grid.split) * 0x10001u;
  __threadfence();
  hopper::group_sync(1, Tile::kWorkers);
  if (threadIdx.x == 0) {
    const uint32_t add = begin < end ? 1u : 0x10001u;
    if (atomicAdd(ticket, add) + add == all) *ticket = 0;
    uint32_t there = begin < end ? 0 : all;
    while ((there & 0xffff) < static_cast<uint32_t>(grid.split)) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(there) : "l"(ticket) : "memory");
    }
  }
  if (begin == end) return;
  hopper::group_sync(1, Tile::kWorkers);
  const float4* parts = grid.parts + int64_t{(index - j.part) * Tile::kPair + rank} * kSize;
  add_up(PartsOut<Tile, Out>(g, j), parts, int64_t{Tile::kPair} * kSize, grid.split, begin, end);
  hopper::group_sync(1, Tile::kWorkers);
  if (threadIdx.x == 0 && atomicAdd(ticket, 0x10000u) + 0x10000u == all) *ticket = 0;
}

template <class Tile, class Out>
__device__ void multiply_parts(const PartsRing<Tile>& ring, const Gemm& g, const PartsGrid& grid, int rank) {
  const int jobs = parts_jobs<Tile>(grid), step = static_cast<int>(gridDim.x) / Tile::kPair;
  typename Tile::Sums acc;
  int i = 0;
  for (int index = blockIdx.x / Tile::kPair; index < jobs; index += step) {
    const PartsJob j = parts_job<Tile>(grid, index, rank);
    for (int k = j.first; k < j.last; ++k, ++i) {
      const int s = i % Tile::kDepth;
      hopper::barrier_wait(ring.full + s, static_cast<uint32_t>(i / Tile::kDepth) & 1);
      const uint64_t a =
          hopper::tile_descriptor(hopper::shared_address(ring.weight(s)) + threadIdx.x / 128 * 64 * Tile::kK * 2);
      const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
      hopper::wgmma_fence();
#pragma unroll
      for (int n = 0; n < Tile::kK / 16; ++n) {
        hopper::Wgmma<Tile::kTokens>::run(acc, a + 2 * n, b + 2 * n, k > j.first || n > 0);
      }
      hopper::wgmma_commit();
      hopper::wgmma_wait<1>();
      if (k > j.first) release_parts<Tile>(ring, i - 1);
    }
    hopper::wgmma_wait<0>();
    release_parts<Tile>(ring, i - 1);
    finish_part<Tile, Out>(g, grid, j, index, rank, acc);
  }
}

template <class Tile, class Out>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    parts_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                 const Gemm g, const PartsGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  let_next_start();
  const uint32_t at = hopper::shared_address(memory);
  const PartsRing<Tile> ring{memory + ((at + 1023) / 1024 * 1024 - at), barriers, barriers + Tile::kDepth};
  const int rank = Tile::kPair > 1 ? hopper::cluster_rank() : 0;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kDepth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, Tile::kPair * Tile::kWorkers / 32);
    }
    hopper::barrier_init_done();
  }
  if constexpr (Tile::kPair > 1) {
    hopper::cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= Tile::kWorkers) {
    if constexpr (Tile::kMoves) hopper::registers_down<40>();
    const PartsLoads<Tile> loads{ring, &weight_map, &x_map, rank};
    if (threadIdx.x == Tile::kWorkers) fill_parts(loads, grid);
    __syncwarp();
  } else {
    if constexpr (Tile::kMoves) hopper::registers_up<232>();
    multiply_parts<Tile, Out>(ring, g, grid, rank);
  }
  if constexpr (Tile::kPair > 1) hopper::cluster_sync();  // nobody leaves while the other one's copies come here
}

}  // namespace tern::cuda
