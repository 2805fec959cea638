// How sums of the portable kernels for codes leave: scales of rows, bias, a gate, and what norms beside the product ask
// for.
#pragma once

#include "cuda/gemm/codes/codes_shape.cuh"
#include "cuda/gemm/codes/codes_widen.cuh"
#include "cuda/gemm/epilogues/norm_epilogue.cuh"

namespace tern::cuda {

// What every column of the block is multiplied by and gets added.
struct CodeColumn {
  float scale = 1.0f, bias = 0.0f;
};

template <class S>
__device__ __forceinline__ CodeColumn column_of(const CodeGemm& g, const char* w, int row) {
  CodeColumn c;
  const int stripe = stripe_of<S>(g, row / kStripe), n = stripe * kStripe + row % kStripe;
  if (n >= g.w.n) return c;
  if constexpr (S::kGroups == 0) c.scale = group_of(g.w, w + stripe * g.w.stripe_bytes(), 0)[row % kStripe];
  if (g.bias != nullptr) c.bias = g.bias[n];
  return c;
}

// A norm before the product: scales of the block's tokens.
template <class S>
__device__ __forceinline__ void token_scales(const CodeGemm& g, const CodeBlock& b, float* scales) {
  for (int t = static_cast<int>(threadIdx.x) / 32; t < tokens_of<S>(b); t += S::kWarps) {
    const float* from = g.before.squares + (b.row0 + t) * g.before.parts;
    float sum = 0.0f;
    for (int p = static_cast<int>(threadIdx.x & 31); p < g.before.parts; p += 32) sum += from[p];
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) scales[t] = norm_scale(g.before, sum, g.w.k);
  }
}

// A norm behind it: the thread's column of what the product is added to, and of the norm's weight.
template <class S>
struct CodeResidual {
  static constexpr int kMost = S::kNorms ? S::kTokens * S::kRows / S::kThreads : 1, kStep = S::kThreads / S::kRows;
  float residual[kMost] = {}, weight = 0.0f;
  __device__ __forceinline__ void load(const CodeGemm& g, const CodeBlock& b) {
    const int64_t n = int64_t{blockIdx.x} * S::kRows + threadIdx.x % S::kRows;
    weight = norm_weight(g.after, n);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int64_t row = b.row0 + threadIdx.x / S::kRows + i * kStep;
      if (row < b.row_end) residual[i] = g.after.residual[row * g.after.residual_row + n];
    }
  }
  // A warp has 32 columns of a token.
  __device__ __forceinline__ void leave(const CodeGemm& g, const CodeBlock& b, const float* sums, const float* scales,
                                        const CodeColumn& c) const;
};

template <class S>
__device__ __forceinline__ float sum_of(const float* sums, int t, int row, CodeColumn c, const float* scales) {
  if (scales != nullptr) c.scale *= scales[t];
  float v = sums[t * S::kSumPitch + row];
#pragma unroll
  for (int i = 1; i < S::kAlong; ++i) v += sums[(i * S::kTokens + t) * S::kSumPitch + row];
  return v * c.scale + c.bias;
}

template <class S>
__device__ __forceinline__ void CodeResidual<S>::leave(const CodeGemm& g, const CodeBlock& b, const float* sums,
                                                       const float* scales, const CodeColumn& c) const {
  const int col = static_cast<int>(threadIdx.x) % S::kRows;
  const int64_t n = int64_t{blockIdx.x} * S::kRows + col;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int t = static_cast<int>(threadIdx.x) / S::kRows + i * kStep;
    if (b.row0 + t >= b.row_end) break;
    const float v = sum_of<S>(sums, t, col, c, scales);
    const float square = warp_sum(epilogue_normed(g.after, b.row0 + t, n, v, residual[i], weight));
    if (n % 32 == 0) g.after.squares[(b.row0 + t) * g.after.parts + n / 32] = square;
  }
}

// Sums of all warps meet in shared memory and leave in rows.
template <class S>
__device__ __forceinline__ void finish(const CodeGemm& g, const CodeBlock& b, float* sums,
                                       const float (&acc)[S::kStripes][S::kTokTiles][4], const CodeColumn (&c)[2],
                                       const float* scales, const CodeResidual<S>& residual) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  float* const own = sums + warp / S::kAcross * S::kTokens * S::kSumPitch + warp % S::kAcross * S::kStripes * kStripe;
#pragma unroll
  for (int i = 0; i < S::kStripes; ++i) {
#pragma unroll
    for (int t = 0; t < S::kTokTiles; ++t) {
#pragma unroll
      for (int v = 0; v < 4; ++v)
        own[(t * 8 + lane % 4 * 2 + v % 2) * S::kSumPitch + i * kStripe + lane / 4 + v / 2 * 8] = acc[i][t][v];
    }
  }
  __syncthreads();
  if constexpr (S::kNorms) {
    if (g.after.residual != nullptr) return residual.leave(g, b, sums, scales, c[0]);
  }
  const int cols = g.gated ? S::kRows / 2 : S::kRows, col = static_cast<int>(threadIdx.x) % cols;
  const int n = static_cast<int>(blockIdx.x) * cols + col;
  if (n >= (g.gated ? g.w.n / 2 : g.w.n)) return;
  for (int t = static_cast<int>(threadIdx.x) / cols; t < S::kTokens && b.row0 + t < b.row_end;
       t += S::kThreads / cols) {
    float v = sum_of<S>(sums, t, col, c[0], scales);
    if (g.gated) v = silu(v) * sum_of<S>(sums, t, col + cols, c[1], scales);
    const int64_t at = (b.row0 + t) * g.out_row + b.head * g.out_head + n;
    if (g.out_bf16) {
      static_cast<bf*>(g.out)[at] = from_float<bf>(v);
    } else {
      static_cast<float*>(g.out)[at] = v;
    }
  }
}

}  // namespace tern::cuda
