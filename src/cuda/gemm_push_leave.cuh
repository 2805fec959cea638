// How the blocks of gemm_push.cuh exchange their parts and what becomes of the sums.
#pragma once

#include "cuda/gemm_norm.cuh"
#include "cuda/gemm_push.cuh"

namespace tern::cuda {

// Sums number i of a tile are quad i / kWorkers of thread i % kWorkers; each of the cluster's blocks has an equal share
// of neighbouring ones. To all blocks what is theirs of this block's part.
template <class Tile, int kSplit>
__device__ __forceinline__ void send_part(const PushRing<Tile>& ring, int rank, const typename Tile::Sums& acc) {
  constexpr int kShare = Tile::kQuads * Tile::kWorkers / kSplit;
  const uint32_t zone = hopper::shared_address(ring.stages) + static_cast<uint32_t>(rank * kShare) * 16;
  const uint32_t landed = hopper::shared_address(ring.landed);
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    const int i = q * Tile::kWorkers + static_cast<int>(threadIdx.x), to = i / kShare;
    push_store(push_address(zone + static_cast<uint32_t>(i % kShare) * 16, to), push_address(landed, to), acc[4 * q],
               acc[4 * q + 1], acc[4 * q + 2], acc[4 * q + 3]);
  }
}

// A quad: two rows of the weight, 8 apart, and two tokens.
template <class Tile>
__device__ __forceinline__ void store_quad(const Gemm& g, const PushWork& work, int quad, int thread, float4 v) {
  const int lane = thread & 31;
  const int64_t token = quad * 8 + lane % 4 * 2;
  const auto add = [&](int64_t at, float& x, float& y) {
    if (g.bias != nullptr) x += g.bias[at], y += g.bias[at];
  };
  if (g.gated) {
    const int64_t n = g.n / 2, col = (int64_t{work.tile} * Tile::kRows + thread / 32 * 16) / 2 + lane / 4;
    if (col >= n) return;
    add(col, v.x, v.y), add(n + col, v.z, v.w);
    if (token < g.rows) store_one(g, token, col, silu(v.x) * v.z);
    if (token + 1 < g.rows) store_one(g, token + 1, col, silu(v.y) * v.w);
    return;
  }
  const int64_t col = int64_t{work.tile} * Tile::kRows + thread / 32 * 16 + lane / 4;
  if (col < g.n) {
    add(col, v.x, v.y);
    if (token < g.rows) store_one(g, token, col, v.x);
    if (token + 1 < g.rows) store_one(g, token + 1, col, v.y);
  }
  if (col + 8 < g.n) {
    add(col + 8, v.z, v.w);
    if (token < g.rows) store_one(g, token, col + 8, v.z);
    if (token + 1 < g.rows) store_one(g, token + 1, col + 8, v.w);
  }
}

// Sums number i of a block's share, of all parts in the order of blocks: the bits of gemm_hopper.
template <class Tile, int kSplit>
__device__ __forceinline__ float4 add_quad(const PushRing<Tile>& ring, int i) {
  constexpr int kShare = Tile::kQuads * Tile::kWorkers / kSplit;
  const auto* zone = reinterpret_cast<const float4*>(ring.stages);
  float4 v[kSplit];
#pragma unroll
  for (int s = 0; s < kSplit; ++s) v[s] = zone[s * kShare + i];
  float4 sum = v[0];
#pragma unroll
  for (int s = 1; s < kSplit; ++s) sum.x += v[s].x, sum.y += v[s].y, sum.z += v[s].z, sum.w += v[s].w;
  return sum;
}

// The same as a norm before the product would have it; `token` is the first of the quad in the block's tile.
__device__ __forceinline__ void scale_quad(const Gemm& g, const float* scales, int token, float4& sum) {
  if (g.before.squares == nullptr) return;
  sum.x *= scales[token], sum.z *= scales[token], sum.y *= scales[token + 1], sum.w *= scales[token + 1];
}

template <class Tile, int kSplit>
__device__ __forceinline__ void add_share(const Gemm& g, const PushRing<Tile>& ring, const PushWork& work, int rank,
                                          const float* scales) {
  constexpr int kShare = Tile::kQuads * Tile::kWorkers / kSplit;
  push_receive(ring.landed);
  for (int i = static_cast<int>(threadIdx.x); i < kShare; i += Tile::kWorkers) {
    const int at = rank * kShare + i, quad = at / Tile::kWorkers, thread = at % Tile::kWorkers;
    float4 sum = add_quad<Tile, kSplit>(ring, i);
    scale_quad(g, scales, quad * 8 + thread % 4 * 2, sum);
    store_quad<Tile>(g, work, quad, thread, sum);
  }
}

// Column of the first row of the weight that a thread's quads belong to: the same for all of them.
template <class Tile>
__device__ __forceinline__ int64_t push_column(const PushWork& work, int thread) {
  return int64_t{work.tile} * Tile::kRows + thread / 32 * 16 + (thread & 31) / 4;
}

// A norm before or behind the product: what a worker reads of it, on its way while the worker multiplies.
template <class Tile>
struct PushNorm {
  static constexpr int kMostTurns = Tile::kQuads < 2 ? 1 : Tile::kQuads / 2;
  NormQuad quads[kMostTurns];
  float2 weights;
  NormScales<2> own;
  int begin;  // number of the thread's first sum in the tile
  // The token, in the tile, and the column of sum number `turn` of the thread.
  __device__ __forceinline__ int token(int turn) const { return (begin / Tile::kWorkers + turn) * 8 + begin % 4 * 2; }
  __device__ __forceinline__ int64_t column(const PushWork& work) const {
    return push_column<Tile>(work, begin % Tile::kWorkers);
  }
  __device__ __forceinline__ void load(const Gemm& g, const PushGrid& grid, const PushWork& work, int rank) {
    const int share = Tile::kQuads * Tile::kWorkers / grid.split;
    begin = rank * share + static_cast<int>(threadIdx.x);
    const bool leaves = Tile::kNorms && g.after.residual != nullptr && static_cast<int>(threadIdx.x) < share;
    if (leaves) bring_norm_weight(g.after, column(work));
    if (g.after.residual == nullptr && g.before.squares == nullptr) return;
    wait_for_previous();
    if (g.before.squares != nullptr) {
      const int first = rank * Tile::kQuads / grid.split * 8;
      own.begin(g, 0, max(Tile::kTokens / grid.split, 8), Tile::kWorkers, [&](int u) { return first + u; });
    }
    if (!leaves) return;
    const int64_t col = column(work);
    weights = make_float2(norm_weight(g.after, col), norm_weight(g.after, col + 8));
#pragma unroll
    for (int t = 0; t < kMostTurns; ++t) {
      if (t * Tile::kWorkers < share) quads[t].load(g, token(t), col);
    }
  }
};

// With a norm behind the product.
template <class Tile, int kSplit>
__device__ __forceinline__ void leave_share(const Gemm& g, const PushRing<Tile>& ring, const PushWork& work,
                                            const PushNorm<Tile>& norm, const float* scales) {
  constexpr int kShare = Tile::kQuads * Tile::kWorkers / kSplit;
  constexpr int kTurns = (kShare + Tile::kWorkers - 1) / Tile::kWorkers;
  push_receive(ring.landed);
  if (kShare < Tile::kWorkers && threadIdx.x >= kShare) return;
#pragma unroll
  for (int t = 0; t < kTurns; ++t) {
    float4 sum = add_quad<Tile, kSplit>(ring, static_cast<int>(threadIdx.x) + t * Tile::kWorkers);
    scale_quad(g, scales, norm.token(t), sum);
    norm.quads[t].leave(g, norm.token(t), norm.column(work), norm.weights, sum);
  }
}

// All workers. Nobody waits at the end: a block stays until all parts of its share have arrived, so those who send may
// leave before.
template <class Tile, int kSplit>
__device__ __forceinline__ void exchange(const Gemm& g, const PushRing<Tile>& ring, const PushWork& work, int rank,
                                         const typename Tile::Sums& acc, const PushNorm<Tile>& norm,
                                         const float* scales) {
  send_part<Tile, kSplit>(ring, rank, acc);
  if constexpr (Tile::kNorms && Tile::kQuads * Tile::kWorkers / kSplit % 32 == 0) {
    if (g.after.residual != nullptr) return leave_share<Tile, kSplit>(g, ring, work, norm, scales);
  }
  add_share<Tile, kSplit>(g, ring, work, rank, scales);
}

}  // namespace tern::cuda
