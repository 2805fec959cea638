// How the sums of gemm_large_tile.cuh leave: as they are, joined with those of other parts, or behind a gate.
#pragma once

#include "cuda/gemm/sm90/gemm_large_tile.cuh"

namespace tern::cuda {

// Two rows of the weight and, of every quad, two tokens: what a thread holds of a tile.
template <class Tile>
struct LargeTileOut {
  float* to;  // of the first quad
  int64_t row;
  int count;  // of tokens, from the thread's first one
  bool first, second;
  float bias[2];
  __device__ LargeTileOut(const Gemm& g, const LargeTileJob& j, float* out, int64_t out_row) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int64_t col = int64_t{j.weight_tile} * Tile::kRows + warp * 16 + lane / 4;
    const int64_t token = int64_t{j.row_tile} * Tile::kTokens + lane % 4 * 2;
    to = out + token * out_row + col, row = out_row;
    count = static_cast<int>(min(int64_t{Tile::kTokens}, g.rows - token));
    first = col < g.n, second = col + 8 < g.n;
    // What is added to nothing must not change its sign.
    bias[0] = g.bias != nullptr && first ? g.bias[col] : -0.0f;
    bias[1] = g.bias != nullptr && second ? g.bias[col + 8] : -0.0f;
  }
  __device__ __forceinline__ void put(int quad, float4 v) const {
    float* const at = to + quad * 8 * row;
    const bool one = quad * 8 < count, two = quad * 8 + 1 < count;
    if (one && first) at[0] = v.x + bias[0];
    if (two && first) at[row] = v.y + bias[0];
    if (one && second) at[8] = v.z + bias[1];
    if (two && second) at[row + 8] = v.w + bias[1];
  }
};

template <class Tile>
__device__ __forceinline__ float4 quad_of(const typename Tile::Sums& acc, int q) {
  const auto& a = acc[q * 8 / Tile::kWide];
  const int i = q % (Tile::kWide / 8) * 4;
  return make_float4(a[i], a[i + 1], a[i + 2], a[i + 3]);
}

template <class Tile>
__device__ __forceinline__ void epilogue_whole(const Gemm& g, const LargeTileJob& j, const typename Tile::Sums& acc) {
  const bool apart = g.apart != nullptr;
  const LargeTileOut<Tile> out(g, j, apart ? g.apart + j.part * g.rows * g.n : static_cast<float*>(g.out),
                               apart ? g.n : g.out_row);
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) out.put(q, quad_of<Tile>(acc, q));
}

// Says that this warp's part is there, and waits until all are. Nothing to read: neither waits.
template <int kSplit>
__device__ __forceinline__ void meet_parts(uint32_t* ticket, bool reads) {
  constexpr uint32_t kAll = kSplit * 0x10001u;
  __syncwarp();
  if ((threadIdx.x & 31) == 0) {
    const uint32_t add = reads ? 1u : 0x10001u;
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;\n" : "=r"(before) : "l"(ticket), "r"(add) : "memory");
    if (before + add == kAll) *ticket = 0;
    uint32_t there = reads ? 0 : kAll;
    while ((there & 0xffff) < kSplit) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(there) : "l"(ticket) : "memory");
    }
  }
  __syncwarp();
}

__device__ __forceinline__ void add_to(float4& sum, float4 v) {
  sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
}

// Leaves what other parts' warps add up, and adds up a share of the quads: its own sums never leave the registers.
template <class Tile, int kSplit>
__device__ __forceinline__ void join_parts(const Gemm& g, const LargeTileGrid& grid, const LargeTileJob& j, int index,
                                           int rank, const typename Tile::Sums& acc) {
  // Quads of a share; a small tile has fewer quads than parts, and only every kEach-th part has one.
  constexpr int kShare = Tile::kQuads < kSplit ? 1 : Tile::kQuads / kSplit, kEach = kShare * kSplit / Tile::kQuads;
  constexpr int kSize = Tile::kQuads * Tile::kWorkers, kMost = kSplit == 2 ? 8 : kSplit == 4 ? 4 : 2;
  constexpr int kTogether = kMost < kShare ? kMost : kShare;
  float4* const mine = grid.parts + int64_t{index * Tile::kClusterSize + rank} * kSize + threadIdx.x;
  float4 own[kShare];
#pragma unroll
  for (int p = 0; p < kSplit; p += kEach) {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const float4 v = quad_of<Tile>(acc, p / kEach * kShare + i);
      if (p == j.part) {
        own[i] = v;
      } else {
        mine[(p / kEach * kShare + i) * Tile::kWorkers] = v;
      }
    }
  }
  const int tile = index / kSplit * Tile::kClusterSize + rank;
  uint32_t* const ticket = grid.tickets + tile * Tile::kWarps + threadIdx.x / 32;
  const bool reads = j.part % kEach == 0;
  meet_parts<kSplit>(ticket, reads);
  if (!reads) return;
  const int first = j.part / kEach * kShare;
  const float4* const parts =
      grid.parts + int64_t{(index - j.part) * Tile::kClusterSize + rank} * kSize + first * Tile::kWorkers + threadIdx.x;
  const LargeTileOut<Tile> out(g, j, static_cast<float*>(g.out), g.out_row);
#pragma unroll
  for (int q0 = 0; q0 < kShare; q0 += kTogether) {
    float4 v[kTogether][kSplit - 1];  // of the other parts
#pragma unroll
    for (int q = 0; q < kTogether; ++q) {
#pragma unroll
      for (int o = 0; o < kSplit - 1; ++o) {
        const int p = o < j.part ? o : o + 1;
        v[q][o] = __ldcg(parts + p * (Tile::kClusterSize * kSize) + (q0 + q) * Tile::kWorkers);
      }
    }
#pragma unroll
    for (int q = 0; q < kTogether; ++q) {
      float4 sum = j.part == 0 ? own[q0 + q] : v[q][0];
#pragma unroll
      for (int p = 1; p < kSplit; ++p) {
        add_to(sum, p == j.part ? own[q0 + q] : p < j.part ? v[q][p < kSplit - 1 ? p : 0] : v[q][p - 1]);
      }
      out.put(first + q0 + q, sum);
    }
  }
  __syncwarp();
  if ((threadIdx.x & 31) == 0 && atomicAdd(ticket, 0x10000u) + 0x10000u == kSplit * 0x10001u) *ticket = 0;
}

// Rows and columns of a warp's 8 x 8 values, two of a row in a register, change places.
__device__ __forceinline__ uint32_t turned(uint32_t two) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(r) : "r"(two));
  return r;
}

// A warp has 8 columns of what comes of the gate.
template <class Tile>
__device__ __forceinline__ void epilogue_gated(const Gemm& g, const LargeTileJob& j, const typename Tile::Sums& acc) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int64_t col = (int64_t{j.weight_tile} * (Tile::kRows / 16) + warp) * 8;
  if (col >= g.n / 2) return;
  const int64_t token = int64_t{j.row_tile} * Tile::kTokens;
  const int count = static_cast<int>(min(int64_t{Tile::kTokens}, g.rows - token));
  bf* const to = static_cast<bf*>(g.out) + (token + lane / 4) * g.out_row + col + lane % 4 * 2;
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    if (q * 8 >= count) continue;
    const float4 v = quad_of<Tile>(acc, q);
    const uint32_t two = turned(pack2(silu(v.x) * v.z, silu(v.y) * v.w));
    if (q * 8 + lane / 4 < count) *reinterpret_cast<uint32_t*>(to + q * 8 * g.out_row) = two;
  }
}

template <class Tile>
__device__ __forceinline__ void epilogue_large_tile(const Gemm& g, const LargeTileGrid& grid, const LargeTileJob& j,
                                                    int index, int rank, const typename Tile::Sums& acc) {
  if constexpr (Tile::kGated) {
    epilogue_gated<Tile>(g, j, acc);
  } else if (Tile::kSums || grid.split == 1 || g.apart != nullptr) {
    epilogue_whole<Tile>(g, j, acc);
  } else if (grid.split == 2) {
    join_parts<Tile, 2>(g, grid, j, index, rank, acc);
  } else if (grid.split == 4) {
    join_parts<Tile, 4>(g, grid, j, index, rank, acc);
  } else {
    join_parts<Tile, 8>(g, grid, j, index, rank, acc);
  }
}

}  // namespace tern::cuda
