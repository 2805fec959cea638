// Products on Hopper: rows of the weight are the tall side of wgmma, tokens its wide side, so that one row of x costs
// as little as eight. A warp keeps a ring of tiles filled through the copy engine, a warpgroup or two multiply. Tiles
// have all of k (gemm_single_wave_sm90.cu), or the blocks of a cluster share it and add their parts up in order through
// shared memory: in deterministic mode how k is cut depends on the weight alone, never on the rows of x. k advances in
// steps of 16 in one chain per part.
#pragma once

#include "cuda/gemm/portable/gemm_mma.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace tern::cuda {

// kRows: of the weight, 64 for each warpgroup. Where the last one has fewer it multiplies rows of the one before again,
// or what lies behind the tile in shared memory (kSpare), and leaves out what comes of them.
template <int kTokens_, int kBoxRows_, int kDepth_, int kBlocks_, int kRows_ = 128>
struct WgmmaTile {
  static constexpr int kTokens = kTokens_, kBoxRows = kBoxRows_, kDepth = kDepth_, kBlocks = kBlocks_;
  static constexpr int kRows = kRows_, kK = 64, kGroups = (kRows + 63) / 64, kWorkers = 128 * kGroups;
  static constexpr int kThreads = kWorkers + 32, kBox = kRows % 64 == 0 ? 64 : kRows;  // kBox: rows of a copy
  static constexpr bool kWhole = kRows != 128;                                         // k is not cut
  static constexpr int kWeight = kRows * kK * 2, kStage = kWeight + kTokens * kK * 2;  // bytes
  static constexpr int kPartRow = kRows + 4;  // floats: lanes of a store fall into different banks
  static constexpr int kRing = kStage * kDepth, kPart = kTokens * kPartRow * 4;
  static constexpr int kSpare = kRows < 64 ? (64 - kRows) * kK * 2 : 0;
  static constexpr size_t kBytes = 1024 + kSpare + (kRing > kPart ? kRing : kPart);
};

// What a block computes: out[row0 .. row0 + count)[col0 .. col0 + kRows), k tiles [first, last).
struct HopperWork {
  int64_t row0, col0;
  int count, first, last;
};

template <class Tile>
struct Ring {
  char* stages;
  uint64_t *full, *empty;
  __device__ char* weight(int s) const { return stages + s * Tile::kStage; }
  __device__ char* x(int s) const { return weight(s) + Tile::kWeight; }
};

// `weight(to, barrier, k)` and `x(to, barrier, k)` copy the tiles number k; x_bytes of x arrive per stage. One thread.
template <class Tile, class W, class X>
__device__ void fill_ring(const Ring<Tile>& ring, const HopperWork& work, int x_bytes, W&& weight, X&& x) {
  const int steps = work.last - work.first, ahead = steps < Tile::kDepth ? steps : Tile::kDepth;
  for (int i = 0; i < ahead; ++i) {
    hopper::barrier_expect(ring.full + i, static_cast<uint32_t>(Tile::kWeight + x_bytes));
    weight(ring.weight(i), ring.full + i, work.first + i);
  }
  wait_for_previous();  // weights are never written by a step, x is
  for (int i = 0; i < ahead; ++i) x(ring.x(i), ring.full + i, work.first + i);
  for (int i = ahead; i < steps; ++i) {
    const int s = i % Tile::kDepth;
    hopper::barrier_wait(ring.empty + s, static_cast<uint32_t>(i / Tile::kDepth - 1) & 1);
    hopper::barrier_expect(ring.full + s, static_cast<uint32_t>(Tile::kWeight + x_bytes));
    weight(ring.weight(s), ring.full + s, work.first + i);
    x(ring.x(s), ring.full + s, work.first + i);
  }
}

// A warpgroup's rows of the weight times kN tokens; the sums go to part[token][row] in shared memory, over the ring.
template <int kN, class Tile>
__device__ void multiply(const Ring<Tile>& ring, const HopperWork& work, float* part) {
  constexpr int kWide = kN < 128 ? kN : 128, kPieces = kN / kWide;
  constexpr int kMost = Tile::kRows < 64 ? 0 : Tile::kRows - 64;
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, half = min(warp / 4 * 64, kMost);
  float acc[kPieces][kWide / 2];
  const int steps = work.last - work.first;
  for (int i = 0; i < steps; ++i) {
    const int s = i % Tile::kDepth;
    const uint64_t a = hopper::tile_descriptor(hopper::shared_address(ring.weight(s)) + half * Tile::kK * 2);
    const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
    hopper::barrier_wait(ring.full + s, static_cast<uint32_t>(i / Tile::kDepth) & 1);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        hopper::Wgmma<kWide>::run(acc[p], a + 2 * k, b + 2 * k + p * (kWide * Tile::kK * 2 / 16), i + k > 0);
      }
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (i > 0 && lane == 0) hopper::barrier_arrive(ring.empty + (i - 1) % Tile::kDepth);
  }
  hopper::wgmma_wait<0>();
  asm volatile("bar.sync 1, %0;\n" ::"n"(Tile::kWorkers) : "memory");  // both warpgroups have read the ring
  const int row = half + warp % 4 * 16;
  if (Tile::kRows % 64 != 0 && (row < warp / 4 * 64 || row >= Tile::kRows)) return;
  float* at = part + row + lane / 4;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
#pragma unroll
    for (int j = 0; j < kWide / 2; ++j) {
      const int token = p * kWide + j / 4 * 8 + lane % 4 * 2 + j % 2;
      if (token < work.count) at[token * Tile::kPartRow + j / 2 % 2 * 8] = acc[p][j];
    }
  }
}

__device__ __forceinline__ float4 add_bias(const Gemm& g, int64_t col, float4 v) {
  if (g.bias == nullptr || col >= g.n) return v;
  const float* b = g.bias + col;
  const int64_t last = g.n - 1 - col;
  return add_four(v, make_float4(b[0], b[min(int64_t{1}, last)], b[min(int64_t{2}, last)], b[min(int64_t{3}, last)]));
}

// Values [row][col .. col + 4) of out, which has n columns; `wide`: its rows can be written 16 bytes at a time.
__device__ __forceinline__ void store_four(const Gemm& g, bool wide, int64_t row, int64_t col, int64_t n, float4 v) {
  const int64_t offset = row * g.out_row + col;
  if (!wide || col + 4 > n) {
    const float one[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (col + i >= n) break;
      if (g.out_bf16) {
        static_cast<bf*>(g.out)[offset + i] = from_float<bf>(one[i]);
      } else {
        static_cast<float*>(g.out)[offset + i] = one[i];
      }
    }
  } else if (g.out_bf16) {
    *reinterpret_cast<uint2*>(static_cast<bf*>(g.out) + offset) = make_uint2(pack2(v.x, v.y), pack2(v.z, v.w));
  } else {
    *reinterpret_cast<float4*>(static_cast<float*>(g.out) + offset) = v;
  }
}

// With a norm before the product.
__device__ __forceinline__ float4 scale_four(const Gemm& g, const float* scales, int token, float4 v) {
  if (g.before.squares == nullptr) return v;
  const float s = scales[token];
  return make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
}

// Adds the parts of the cluster's blocks in their order; every block writes its share of the tile. Loads of several
// places are on their way together: one takes most of a microsecond. kScaled: `scales` are there where a norm is.
template <class Tile, int kSplit, bool kScaled>
__device__ void add_parts(const Gemm& g, const HopperWork& work, const float* part, int rank, bool wide,
                          const float* scales) {
  constexpr int kLoads = Tile::kBlocks > 2 ? 8 : 16;  // four registers each
  constexpr int kBatch = kSplit == 1 ? 8 : kLoads / kSplit, kStep = kSplit * Tile::kWorkers;
  if (threadIdx.x >= Tile::kWorkers) return;
  const int quads = work.count * (Tile::kRows / 4);
  const auto token = [](int i) { return i / (Tile::kRows / 4); };
  const auto column = [](int i) { return i % (Tile::kRows / 4) * 4; };
  for (int i = rank * Tile::kWorkers + static_cast<int>(threadIdx.x); i < quads; i += kStep * kBatch) {
    float4 v[kBatch][kSplit];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int j = i + b * kStep;
      if (j >= quads) break;
      const float* at = part + token(j) * Tile::kPartRow + column(j);
#pragma unroll
      for (int s = 0; s < kSplit; ++s) {
        v[b][s] = kSplit == 1 ? *reinterpret_cast<const float4*>(at) : hopper::load_cluster(at, s);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int j = i + b * kStep;
      if (j >= quads) break;
      float4 sum = v[b][0];
#pragma unroll
      for (int s = 1; s < kSplit; ++s) sum = add_four(sum, v[b][s]);
      const int64_t col = work.col0 + column(j);
      if constexpr (kScaled) sum = scale_four(g, scales, token(j), sum);
      store_four(g, wide, work.row0 + token(j), col, g.n, add_bias(g, col, sum));
    }
  }
}

// The same where the tile's rows are 64 of gate and the 64 of up that belong to them.
template <class Tile, int kSplit, bool kScaled>
__device__ void add_gated_parts(const Gemm& g, const HopperWork& work, const float* part, int rank, bool wide,
                                const float* scales) {
  constexpr int kHalf = Tile::kRows / 2;
  if (threadIdx.x >= Tile::kWorkers) return;
  const int quads = work.count * (kHalf / 4);
  const int64_t n = g.n / 2;
  for (int i = rank * Tile::kWorkers + static_cast<int>(threadIdx.x); i < quads; i += kSplit * Tile::kWorkers) {
    const int token = i / (kHalf / 4), column = i % (kHalf / 4) * 4;
    const float* at = part + token * Tile::kPartRow + column;
    float4 v[2][kSplit];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int s = 0; s < kSplit; ++s) {
        v[h][s] =
            kSplit == 1 ? *reinterpret_cast<const float4*>(at + h * kHalf) : hopper::load_cluster(at + h * kHalf, s);
      }
    }
    const int64_t col = work.col0 + column;
    float4 gate = v[0][0], up = v[1][0];
#pragma unroll
    for (int s = 1; s < kSplit; ++s) gate = add_four(gate, v[0][s]), up = add_four(up, v[1][s]);
    if constexpr (kScaled) gate = scale_four(g, scales, token, gate), up = scale_four(g, scales, token, up);
    gate = add_bias(g, col, gate), up = add_bias(g, n + col, up);
    store_four(g, wide, work.row0 + token, col, n,
               make_float4(silu(gate.x) * up.x, silu(gate.y) * up.y, silu(gate.z) * up.z, silu(gate.w) * up.w));
  }
}

template <class Tile, int kSplit, bool kScaled = false>
__device__ void finish(const Gemm& g, const HopperWork& work, const float* part, int rank, bool wide,
                       const float* scales = nullptr) {
  if constexpr (Tile::kRows % 64 == 0) {
    if (g.gated) return add_gated_parts<Tile, kSplit, kScaled>(g, work, part, rank, wide, scales);
  }
  add_parts<Tile, kSplit, kScaled>(g, work, part, rank, wide, scales);
}

// Rows of the weight in a box of its map.
template <class Tile>
int weight_box(const Gemm& g) {
  return g.gated ? Tile::kRows / 2 : Tile::kBox;
}

// The weight's part of a stage: a tile's rows from `col0`, or half of them of gate and half of up. load(to, row) copies
// one box.
template <class Tile, class Load>
__device__ void load_weight(const Gemm& g, int64_t col0, char* to, Load&& load) {
  constexpr int kHalf = Tile::kRows / 2;
  load(to, static_cast<int>(col0));
  if (Tile::kBox < Tile::kRows || g.gated)
    load(to + kHalf * Tile::kK * 2, static_cast<int>(col0 + (g.gated ? g.n / 2 : kHalf)));
}

// The ring of a block, its barriers ready. All threads.
template <class Tile>
__device__ Ring<Tile> make_ring(char* memory, uint64_t* barriers) {
  const uint32_t at = hopper::shared_address(memory);
  const Ring<Tile> ring{memory + ((at + 1023) / 1024 * 1024 - at), barriers, barriers + Tile::kDepth};
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kDepth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, Tile::kWorkers / 32);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  return ring;
}

}  // namespace tern::cuda
