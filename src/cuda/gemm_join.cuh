// How the blocks of a cluster join their parts of a tile while rows of x are few. Every block finishes some rows of the
// weight; the others send it their sums as they leave the tensor cores, straight into its shared memory, and it waits
// for bytes instead of for blocks: no barrier of the cluster and no reading across it stands between the last product
// and the result. Parts are added in the order of k, as in add_parts().
#pragma once

#include "cuda/gemm_hopper.cuh"

namespace tern::cuda {

// What lies behind the ring: [source][row of the weight][token], a row padded so that lanes fall into different banks.
template <class Tile>
struct Join {
  static constexpr int kRow = Tile::kTokens + 2, kBytes = Tile::kRows * Tile::kTokens * 4;
  static constexpr size_t kShared = 1024 + Tile::kRing + Tile::kRows * kRow * 4;
};

// This thread's sums to the blocks that finish them. With a gate, rows r and 64 + r go to one block.
template <class Tile, int kSplit>
__device__ __forceinline__ void send_parts(const Gemm& g, const Sums<Tile::kTokens>& sums, int rank, float* join,
                                           uint64_t* arrived) {
  constexpr int kLocal = Tile::kRows / kSplit;
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = warp * 16 + lane / 4 + 8 * h, gated_row = row % 64;
    const int to = g.gated ? gated_row / (kLocal / 2) : row / kLocal;
    const int at = g.gated ? row / 64 * (kLocal / 2) + gated_row % (kLocal / 2) : row % kLocal;
    const float* place = join + (rank * kLocal + at) * Join<Tile>::kRow + lane % 4 * 2;
    const uint32_t there = hopper::address_at(place, to), barrier = hopper::address_at(arrived, to);
#pragma unroll
    for (int q = 0; q < Tile::kTokens / 8; ++q) {
      hopper::send_pair(there + q * 32, sums.v[0][4 * q + 2 * h], sums.v[0][4 * q + 2 * h + 1], barrier);
    }
  }
}

// Four rows of the weight from `row` on, one token: all parts.
template <class Tile, int kSplit>
__device__ __forceinline__ float4 joined(const float* join, int row, int token) {
  float v[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float* at = join + (row + c) * Join<Tile>::kRow + token;
    v[c] = at[0];
#pragma unroll
    for (int s = 1; s < kSplit; ++s) v[c] += at[s * (Tile::kRows / kSplit) * Join<Tile>::kRow];
  }
  return make_float4(v[0], v[1], v[2], v[3]);
}

// The rows of the tile that this block finishes.
template <class Tile, int kSplit>
__device__ __forceinline__ void store_joined(const Gemm& g, const HopperWork& work, const float* join, int rank,
                                             bool wide) {
  constexpr int kLocal = Tile::kRows / kSplit;
  const int local = g.gated ? kLocal / 2 : kLocal, quads = local / 4;
  const int64_t n = g.gated ? g.n / 2 : g.n;
  for (int i = threadIdx.x; i < quads * work.count; i += Tile::kWorkers) {
    const int token = i / quads, row = i % quads * 4;
    const int64_t col = work.col0 + rank * local + row;
    if (col >= n) continue;
    float4 v = add_bias(g, col, joined<Tile, kSplit>(join, row, token));
    if (g.gated) {
      const float4 up = add_bias(g, n + col, joined<Tile, kSplit>(join, local + row, token));
      v = make_float4(silu(v.x) * up.x, silu(v.y) * up.y, silu(v.z) * up.z, silu(v.w) * up.w);
    }
    store_four(g, wide, work.row0 + token, col, n, v);
  }
}

// The sums of this block joined with those of its cluster, and stored. Workers only; all threads of the cluster have
// arrived at its barrier before.
template <class Tile, int kSplit>
__device__ __forceinline__ void join_parts(const Gemm& g, const HopperWork& work, const Sums<Tile::kTokens>& sums,
                                           int rank, float* join, uint64_t* arrived, bool wide) {
  send_parts<Tile, kSplit>(g, sums, rank, join, arrived);
  hopper::barrier_wait(arrived, 0);
  store_joined<Tile, kSplit>(g, work, join, rank, wide);
}

}  // namespace tern::cuda
