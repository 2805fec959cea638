// What becomes of the sums of gemm_streamk.cuh.
#pragma once

#include "cuda/gemm/epilogues/norm_epilogue.cuh"

namespace tern::cuda {

// Tile `tile` of out, from the registers of the products: a thread holds two rows of the weight.
template <class Tile>
__device__ void store_sums(const Gemm& g, int tile, const typename Tile::Sums& acc) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int64_t col = int64_t{tile} * Tile::kRows + warp * 16 + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t c = col + 8 * h;
    if (c >= g.n) return;
    const float bias = g.bias == nullptr ? 0.0f : g.bias[c];
#pragma unroll
    for (int j = 0; j < Tile::kTokens / 4; ++j) {
      const int token = j / 2 * 8 + lane % 4 * 2 + j % 2;
      if (token >= g.rows) continue;
      const int64_t offset = token * g.out_row + c;
      const float v = acc[j / 2 * 4 + j % 2 + 2 * h] + bias;
      if (g.out_bf16) {
        static_cast<bf*>(g.out)[offset] = from_float<bf>(v);
      } else {
        static_cast<float*>(g.out)[offset] = v;
      }
    }
  }
}

// The same with a norm behind the product. Of the first tokens what it needs of the residual is on its way while a warp
// learns whether it is the last; there are not enough registers for more.
template <class Tile>
struct StreamKNorm {
  static constexpr int kQuads = Tile::kTokens / 8, kAhead = kQuads < 4 ? kQuads : 4;
  NormQuad quads[kAhead];
  float2 weights;
  static __device__ __forceinline__ int64_t column(int tile) {
    return int64_t{tile} * Tile::kRows + threadIdx.x / 32 * 16 + (threadIdx.x & 31) / 4;
  }
  __device__ __forceinline__ void load(const Gemm& g, int tile) {
    if (g.after.residual == nullptr) return;
    weights = make_float2(norm_weight(g.after, column(tile)), norm_weight(g.after, column(tile) + 8));
    load(g, tile, 0);
  }
  __device__ __forceinline__ void load(const Gemm& g, int tile, int first) {
#pragma unroll
    for (int q = 0; q < kAhead; ++q) quads[q].load(g, (first + q) * 8 + threadIdx.x % 4 * 2, column(tile));
  }
  __device__ __forceinline__ void epilogue(const Gemm& g, int tile, const typename Tile::Sums& acc) {
    const int64_t col = column(tile);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if (q > 0 && q % kAhead == 0) load(g, tile, q);
      const float* v = acc + 4 * q;
      quads[q % kAhead].epilogue(g, q * 8 + threadIdx.x % 4 * 2, col, weights, make_float4(v[0], v[1], v[2], v[3]));
    }
  }
};

template <class Tile>
__device__ __forceinline__ void epilogue_sums(const Gemm& g, int tile, const typename Tile::Sums& acc,
                                              StreamKNorm<Tile>& norm) {
  if (g.after.residual != nullptr) {
    norm.epilogue(g, tile, acc);
  } else {
    store_sums<Tile>(g, tile, acc);
  }
}

}  // namespace tern::cuda
