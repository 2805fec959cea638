// Products of few rows with a large weight whose k is long: a block per multiprocessor, which its ring fills, walks
// over an equal share of the weight. The ring is not drained between tiles and every multiprocessor reads as much as
// any other; clusters find places in pairs and leave others idle. A tile whose k was cut is finished by warps: of those
// that have the same 16 rows of it the one that comes last adds the parts up in the order of k. Nothing is waited for
// but a warp's own ticket, and whose a tile is was worked out while the first weights came. Where the cuts are depends
// on the weight and the GPU alone.
#pragma once

#include "cuda/gemm/sm90/gemm_streamk_epilogue.cuh"
#include "cuda/gemm/sm90/gemm_wgmma.cuh"

namespace tern::cuda {

template <int kTokens_, int kChunks_, int kDepth_, int kBlocks_>
struct StreamKTile {
  static constexpr int kTokens = kTokens_, kChunks = kChunks_, kDepth = kDepth_, kBlocks = kBlocks_;
  static constexpr int kRows = 128, kThreads = 288, kWorkers = 256;
  static constexpr int kWeightBox = kRows * 128, kXBox = kTokens * 128;  // bytes of 64 values of k
  static constexpr int kWeight = kWeightBox * kChunks, kStage = kWeight + kXBox * kChunks;
  static constexpr size_t kBytes = 1024 + kStage * kDepth;
  using Sums = float[kTokens / 2];  // of a thread
};

// The shares: steps are numbered tile by tile; block b of `blocks` takes [begin(b), begin(b + 1)).
struct Iterator {
  int tiles, per_tile, blocks;
  uint32_t stage_bytes;  // that arrive in a stage
  float4* parts;         // [2 * blocks][kTokens / 8][256]
  uint32_t* tickets;     // [tiles][8], zero between launches
  // What is divided has 32 bits (streamk_fits): of 64 it takes a hundred instructions.
  __device__ int begin(int b) const { return static_cast<int>(uint32_t(tiles * per_tile) * b / blocks); }
  // Who takes a step.
  __device__ int owner(int step) const {
    return static_cast<int>((uint32_t(step + 1) * blocks - 1) / uint32_t(tiles * per_tile));
  }
  // Where block b leaves its part of a tile: the tile that it begins with, or the one that it ends with.
  __device__ int slot(int b, int first) const { return 2 * b + (b == first ? 1 : 0); }
};

// The blocks that have steps of a tile.
struct StreamKOwners {
  int first, last;
  __device__ StreamKOwners(const Iterator& w, int tile)
      : first(w.owner(tile * w.per_tile)), last(w.owner((tile + 1) * w.per_tile - 1)) {}
};

template <class Tile>
__device__ void epilogue_part(const Iterator& w, int slot, const typename Tile::Sums& acc) {
  float4* to = w.parts + int64_t{slot} * (Tile::kTokens / 8) * Tile::kWorkers + threadIdx.x;
#pragma unroll
  for (int q = 0; q < Tile::kTokens / 8; ++q) {
    const float* v = acc + 4 * q;
    to[q * Tile::kWorkers] = make_float4(v[0], v[1], v[2], v[3]);
  }
}

// All parts of a tile, the lower k first. Several are on their way at once.
template <class Tile>
__device__ __forceinline__ void gather_parts(const Iterator& w, StreamKOwners owners, typename Tile::Sums& acc) {
  constexpr int kQuads = Tile::kTokens / 8, kBatch = kQuads <= 2 ? 8 : 12 / kQuads;
  for (int b0 = owners.first; b0 <= owners.last; b0 += kBatch) {
    float4 v[kBatch][kQuads];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (b0 + i > owners.last) break;
      const float4* from = w.parts + int64_t{w.slot(b0 + i, owners.first)} * kQuads * Tile::kWorkers + threadIdx.x;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) v[i][q] = __ldcg(from + q * Tile::kWorkers);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (b0 + i > owners.last) break;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        float* to = acc + 4 * q;
        const bool start = b0 + i == owners.first;
        to[0] = start ? v[i][q].x : to[0] + v[i][q].x, to[1] = start ? v[i][q].y : to[1] + v[i][q].y;
        to[2] = start ? v[i][q].z : to[2] + v[i][q].z, to[3] = start ? v[i][q].w : to[3] + v[i][q].w;
      }
    }
  }
}

// Leaves this block's part of a tile; finishes the tile's rows of a warp that is the last.
template <class Tile>
__device__ __forceinline__ void hand_in(const Gemm& g, const Iterator& w, int tile, StreamKOwners owners,
                                        typename Tile::Sums& acc) {
  epilogue_part<Tile>(w, w.slot(blockIdx.x, owners.first), acc);
  StreamKNorm<Tile> norm;
  norm.load(g, tile);
  if (!hopper::last_to_come(w.tickets + 8 * tile + threadIdx.x / 32, owners.last - owners.first + 1)) return;
  gather_parts<Tile>(w, owners, acc);
  epilogue_sums<Tile>(g, tile, acc, norm);
}

// One stage of the ring, once it is there: acc (+)= 64 rows of the weight times the tokens.
template <class Tile>
__device__ __forceinline__ void multiply_stage(const Ring<Tile>& ring, int s, uint32_t parity, bool add,
                                               typename Tile::Sums& acc) {
  const uint64_t a = hopper::tile_descriptor(hopper::shared_address(ring.weight(s)) + threadIdx.x / 128 * 8192);
  const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
  hopper::barrier_wait(ring.full + s, parity);
  hopper::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4 * Tile::kChunks; ++k) {
    const int at_a = k / 4 * (Tile::kWeightBox / 16) + k % 4 * 2, at_b = k / 4 * (Tile::kXBox / 16) + k % 4 * 2;
    hopper::Wgmma<Tile::kTokens>::run(acc, a + at_a, b + at_b, add || k > 0);
  }
  hopper::wgmma_commit();
}

// The steps of a block, multiplied by two warpgroups. Others have steps of its first tile and its last one at most.
template <class Tile>
__device__ void walk(const Ring<Tile>& ring, const Gemm& g, const Iterator& w) {
  const int lane = threadIdx.x & 31, block = blockIdx.x;
  const int begin = w.begin(block), end = w.begin(block + 1);
  const StreamKOwners of_first(w, begin / w.per_tile), of_last(w, (end - 1) / w.per_tile);
  if (g.after.residual != nullptr) wait_for_previous();
  typename Tile::Sums acc;
  int i = 0;
  for (int step = begin; step < end;) {
    const int tile = step / w.per_tile, first = tile * w.per_tile, stop = min(end, first + w.per_tile);
    if (g.after.residual != nullptr) bring_norm_weight(g.after, StreamKNorm<Tile>::column(tile));
    for (int j = step; j < stop; ++j, ++i) {
      const int s = i % Tile::kDepth;
      multiply_stage(ring, s, static_cast<uint32_t>(i / Tile::kDepth) & 1, j > step, acc);
      hopper::wgmma_wait<1>();
      if (j > step && lane == 0) hopper::barrier_arrive(ring.empty + (i - 1) % Tile::kDepth);
    }
    hopper::wgmma_wait<0>();
    if (lane == 0) hopper::barrier_arrive(ring.empty + (i - 1) % Tile::kDepth);
    if (step == first && stop == first + w.per_tile) {
      StreamKNorm<Tile> norm;
      norm.load(g, tile);
      epilogue_sums<Tile>(g, tile, acc, norm);
    } else {
      StreamKOwners owners = of_last;
      if (step == begin) owners.first = of_first.first, owners.last = of_first.last;
      hand_in<Tile>(g, w, tile, owners, acc);
    }
    step = stop;
  }
}

// What goes into stage s of the ring: the weight's part of step `step`, and x's.
template <class Tile>
struct StreamKLoads {
  const Ring<Tile>& ring;
  const CUtensorMap *weight_map, *x_map;
  uint32_t stage_bytes;
  __device__ void weight(int s, int tile, int step) const {
    hopper::barrier_expect(ring.full + s, stage_bytes);
#pragma unroll
    for (int c = 0; c < Tile::kChunks; ++c) {
      char* to = ring.weight(s) + c * Tile::kWeightBox;
      const int k = (step * Tile::kChunks + c) * 64;
      hopper::load_box(to, weight_map, ring.full + s, k, tile * Tile::kRows, hopper::kEvictFirst);
    }
  }
  __device__ void x(int s, int step) const {
#pragma unroll
    for (int c = 0; c < Tile::kChunks; ++c) {
      hopper::load_box(ring.x(s) + c * Tile::kXBox, x_map, ring.full + s, (step * Tile::kChunks + c) * 64, 0,
                       hopper::kEvictLast);
    }
  }
};

template <class Tile>
__device__ void fill_walk(const StreamKLoads<Tile>& loads, const Iterator& w) {
  const int begin = w.begin(blockIdx.x), steps = w.begin(blockIdx.x + 1) - begin, ahead = min(steps, Tile::kDepth);
  const auto weight = [&](int i) {
    loads.weight(i % Tile::kDepth, (begin + i) / w.per_tile, (begin + i) % w.per_tile);
  };
  const auto x = [&](int i) { loads.x(i % Tile::kDepth, (begin + i) % w.per_tile); };
  for (int i = 0; i < ahead; ++i) weight(i);
  wait_for_previous();  // weights are never written by a step, x is
  for (int i = 0; i < ahead; ++i) x(i);
  for (int i = ahead; i < steps; ++i) {
    hopper::barrier_wait(loads.ring.empty + i % Tile::kDepth, static_cast<uint32_t>(i / Tile::kDepth - 1) & 1);
    weight(i);
    x(i);
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    streamk_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                   const Gemm g, const Iterator w) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  let_next_start();
  const Ring<Tile> ring = make_ring<Tile>(memory, barriers);
  if (threadIdx.x >= Tile::kWorkers) {
    const StreamKLoads<Tile> loads{ring, &weight_map, &x_map, w.stage_bytes};
    if (threadIdx.x == Tile::kWorkers) fill_walk(loads, w);
  } else {
    if (threadIdx.x < 32) bring_parameters(g, w);
    walk(ring, g, w);
  }
}

}  // namespace tern::cuda
