// Codes times bfloat16 tokens. Warps read stripes of the weight by copies of their own into a ring in shared memory,
// widen them in registers and are the tall side of mma; tokens are the wide one and shared by the block. Warps that
// share k are added up at the end, in order.
#pragma once

#include "cuda/gemm/codes/codes_epilogue.cuh"
#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/gemm/portable/gemm_mma.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {

// One warp's codes and scales of a stage.
template <class S>
__device__ __forceinline__ void load_codes(const CodeGemm& g, const char* w, int step, char* stage) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int across = warp % S::kAcross, block = step * S::kAlong + warp / S::kAcross;
  char* const to = stage + warp * S::kStripes * S::kUnit;
  const int64_t stripe_bytes = g.w.stripe_bytes();
#pragma unroll
  for (int i = 0; i < S::kStripes; ++i) {
    const int stripe = stripe_of<S>(g, across * S::kStripes + i);
    const bool there = block < g.w.blocks() && stripe < g.w.stripes();
    const char* from = there ? w + stripe * stripe_bytes + int64_t{block} * S::kUnit + lane * 16 : w;
#pragma unroll
    for (int j = 0; j < S::kUnit; j += 512)
      copy_async(to + i * S::kUnit + j + lane * 16, from + (there ? j : 0), there ? 16 : 0);
  }
  if constexpr (S::kGroups > 0) {
    constexpr int kPieces = S::kGroups * S::kGroupBytes / 16, kCopies = S::kStripes * kPieces;  // of 16 bytes
    for (int copy = lane; copy < kCopies; copy += 32) {
      const int stripe = stripe_of<S>(g, across * S::kStripes + copy / kPieces), at = copy % kPieces * 16;
      const int group = S::kGroups == 2 ? 2 * block : (block * kCodeBlock + g.w.shift) / g.w.group;
      const bool there = block < g.w.blocks() && stripe < g.w.stripes() && group + at / S::kGroupBytes < g.w.groups();
      const char* from = there ? w + stripe * stripe_bytes + g.w.code_bytes() + group * S::kGroupBytes + at : w;
      copy_async(stage + S::kCodeBytes + warp * kCopies * 16 + copy * 16, from, there ? 16 : 0);
    }
  }
}

// The block's tokens of a stage; those that are not there have been cleared for good.
template <class S>
__device__ __forceinline__ void load_tokens(const CodeGemm& g, const CodeBlock& b, int step, char* stage) {
  constexpr int kPieces = S::kAlong * kCodeBlock / 8;  // of 16 bytes, of a token
  const int here = tokens_of<S>(b);
  const bf* x = static_cast<const bf*>(g.x) + b.head * g.x_head;
  char* const to = stage + S::kCodeBytes + S::kScaleBytes;
  for (int i = threadIdx.x; i < here * kPieces; i += S::kThreads) {
    const int t = i / kPieces, k = (step * kPieces + i % kPieces) * 8;
    const int64_t row = g.from != nullptr ? g.from[b.row0 + t] : b.row0 + t;
    const int left = g.w.k - k, bytes = left <= 0 ? 0 : left >= 8 ? 16 : left * 2;
    copy_async(to + t * S::kPitch + i % kPieces * 16, bytes > 0 ? x + row * g.x_row + k : x, bytes);
  }
}

template <class S>
__device__ __forceinline__ void clear_tokens(const CodeBlock& b, char* memory) {
  const int here = tokens_of<S>(b);
  constexpr int kPieces = S::kPitch / 16;
  for (int s = 0; s < S::kDepth; ++s) {
    char* const to = memory + s * S::kStage + S::kCodeBytes + S::kScaleBytes;
    for (int i = here * kPieces + static_cast<int>(threadIdx.x); i < S::kTokens * kPieces; i += S::kThreads)
      *reinterpret_cast<uint4*>(to + i * 16) = make_uint4(0, 0, 0, 0);
  }
}

// A warp's 64 columns of a stage. Steps that add to one sum are apart, so that none waits for the one before it.
template <class S>
__device__ __forceinline__ void multiply(const char* stage, const uint32_t (&zeros)[S::kStripes][2],
                                         float (&acc)[S::kStripes][S::kTokTiles][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, r = lane / 4;
  const char* codes = stage + warp * S::kStripes * S::kUnit + lane * 16;
  const char* tokens = stage + S::kCodeBytes + S::kScaleBytes + lane % 8 * S::kPitch +
                       warp / S::kAcross * kCodeBlock * 2 + lane / 8 * 16;  // where load_matrix4() wants the lane
  constexpr int kGroup = S::kGroupBytes / 4;                                // words
  constexpr int kTogether = S::kTokTiles < 4 ? S::kTokTiles : 4;            // tiles of tokens
  const auto* scales = reinterpret_cast<const float*>(stage + S::kCodeBytes) + warp * S::kStripes * S::kGroups * kGroup;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    WideCodes a[S::kStripes];
    float low[S::kStripes] = {}, high[S::kStripes] = {};
#pragma unroll
    for (int i = 0; i < S::kStripes; ++i) {
      if constexpr (S::kKind == CodeKind::kInt4) {
        const uint2 w = *reinterpret_cast<const uint2*>(codes + i * S::kUnit + j * 8);
        a[i] = Widen<S::kKind>::wide({w.x, w.y});
      } else {
        const uint4 w = *reinterpret_cast<const uint4*>(codes + i * S::kUnit + j * 512);
        a[i] = Widen<S::kKind>::wide({w.x, w.y, w.z, w.w});
      }
      if constexpr (S::kGroups > 0) {
        const float* s = scales + (i * S::kGroups + (S::kGroups == 2 ? j : 0)) * kGroup;
        low[i] = s[r], high[i] = s[r + 8];
        if constexpr (S::kZeros) subtract_zeros(a[i], zero_of(s, r), zero_of(s, r + 8));
      } else if constexpr (S::kZeros) {
        subtract_zeros(a[i], zeros[i][0], zeros[i][1]);
      }
    }
#pragma unroll
    for (int t = 0; t < S::kTokTiles; t += kTogether) {
      uint32_t b[kTogether][2][2];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        uint32_t x[4];
        load_matrix4(x, tokens + (t + u) * 8 * S::kPitch + j * 64);
        b[u][0][0] = x[0], b[u][0][1] = x[1], b[u][1][0] = x[2], b[u][1][1] = x[3];
      }
      if constexpr (S::kGroups > 0) {
        float part[S::kStripes][kTogether][4];
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
          for (int u = 0; u < kTogether; ++u) {
#pragma unroll
            for (int i = 0; i < S::kStripes; ++i) {
              if (s == 0) mma_first(part[i][u], a[i].a[0], b[u][0]);
              if (s == 1) mma(part[i][u], a[i].a[1], b[u][1]);
            }
          }
        }
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
#pragma unroll
          for (int i = 0; i < S::kStripes; ++i) {
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              float& sum = acc[i][t + u][v];
              sum = __fmaf_rn(v < 2 ? low[i] : high[i], part[i][u][v], sum);
            }
          }
        }
      } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
          for (int u = 0; u < kTogether; ++u) {
#pragma unroll
            for (int i = 0; i < S::kStripes; ++i) mma(acc[i][t + u], a[i].a[s], b[u][s]);
          }
        }
      }
    }
  }
}

// Zero points of a warp's rows, where there is one group of columns.
template <class S>
__device__ __forceinline__ void load_zeros(const CodeGemm& g, const char* w, uint32_t (&zeros)[S::kStripes][2]) {
  if constexpr (S::kZeros && S::kGroups == 0) {
    const int across = static_cast<int>(threadIdx.x) / 32 % S::kAcross, r = static_cast<int>(threadIdx.x & 31) / 4;
#pragma unroll
    for (int i = 0; i < S::kStripes; ++i) {
      const int stripe = stripe_of<S>(g, across * S::kStripes + i);
      if (stripe >= g.w.stripes()) continue;
      const float* group = group_of(g.w, w + stripe * g.w.stripe_bytes(), 0);
      zeros[i][0] = zero_of(group, r), zeros[i][1] = zero_of(group, r + 8);
    }
  }
}

template <class S, int kCount>
__device__ __forceinline__ CodeBlock block_of(const CodeGemm& g, const WeightTable<kCount>& table) {
  RowTile tile{0, int64_t{blockIdx.y} * S::kTokens, g.rows};
  if (kCount > 1) tile = find_tile(g.offsets, g.groups, blockIdx.y, S::kTokens);
  return {static_cast<const char*>(table.w[kCount == 1 ? 0 : tile.group]), tile.row0, tile.row_end, 0};
}

template <class S, int kCount>
__global__ void __launch_bounds__(S::kThreads)
    codes_kernel(const CodeGemm g, const __grid_constant__ WeightTable<kCount> table) {
  extern __shared__ __align__(16) char memory[];
  __shared__ float token_scale[S::kTokens];
  let_next_start();
  const int steps = (g.w.blocks() + S::kAlong - 1) / S::kAlong;
  const auto stage = [&](int step) { return memory + step % S::kDepth * S::kStage; };
  if (kCount > 1) wait_for_previous();  // which weight it is was left there
  const CodeBlock b = block_of<S>(g, table);
  if (b.row0 < 0) return;
#pragma unroll
  for (int s = 0; s < S::kDepth - 1; ++s) {
    if (s < steps) load_codes<S>(g, b.w, s, stage(s));
  }
  const int cols = g.gated ? S::kRows / 2 : S::kRows, col = static_cast<int>(threadIdx.x) % cols;
  const CodeColumn columns[2] = {column_of<S>(g, b.w, col), g.gated ? column_of<S>(g, b.w, col + cols) : CodeColumn{}};
  uint32_t zeros[S::kStripes][2] = {};
  load_zeros<S>(g, b.w, zeros);
  clear_tokens<S>(b, memory);
  if (kCount == 1) wait_for_previous();
#pragma unroll
  for (int s = 0; s < S::kDepth - 1; ++s) {
    if (s < steps) load_tokens<S>(g, b, s, stage(s));
    copy_commit();
  }
  const float* scales = nullptr;
  CodeResidual<S> residual;
  if constexpr (S::kNorms && kCount == 1) {
    if (g.before.squares != nullptr) token_scales<S>(g, b, token_scale), scales = token_scale;
    if (g.after.residual != nullptr) residual.load(g, b);
  }
  float acc[S::kStripes][S::kTokTiles][4] = {};
  for (int step = 0; step < steps; ++step) {
    copy_wait<S::kDepth - 2>();
    __syncthreads();
    if (const int next = step + S::kDepth - 1; next < steps) {
      load_codes<S>(g, b.w, next, stage(next));
      load_tokens<S>(g, b, next, stage(next));
    }
    copy_commit();
    multiply<S>(stage(step), zeros, acc);
  }
  copy_wait<0>();
  __syncthreads();
  finish<S>(g, b, reinterpret_cast<float*>(memory), acc, columns, scales, residual);
}

template <class S, int kCount>
Status launch_codes(const CodeGemm& g, const void* const* weights, const char* name, device::Stream stream) {
  WeightTable<kCount> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const int64_t tiles = g.offsets == nullptr ? blocks_for(g.rows, S::kTokens)
                                             : blocks_for(g.rows, S::kTokens) + (g.groups < g.rows ? g.groups : g.rows);
  TERN_OP_CHECK("linear", tiles <= 65535, "there are too many rows for one product");
  const dim3 grid(static_cast<unsigned>(blocks_for(g.w.n, S::kRows)), static_cast<unsigned>(tiles));
  return launch(stream, name, {grid, S::kThreads, S::kBytes}, codes_kernel<S, kCount>, g, table);
}

// A tile of either kind of product.
template <class S>
Status launch_codes(const CodeGemm& g, const void* const* weights, const char* name, device::Stream stream) {
  if (g.offsets == nullptr) return launch_codes<S, 1>(g, weights, name, stream);
  if (g.groups <= 128) return launch_codes<S, 128>(g, weights, name, stream);
  return launch_codes<S, kMaxExperts>(g, weights, name, stream);
}

template <CodeKind kKind, CodeScale kScale>
Status launch_codes(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream) {
  // Bytes in flight, and room for two blocks or more on a multiprocessor: of smaller codes more stages.
  constexpr int kFew = kKind == CodeKind::kInt4 ? 5 : 4, kSmall = kKind == CodeKind::kInt4 ? 5 : 3;
  constexpr int kMore = kKind == CodeKind::kInt4 ? 4 : 3;
  switch (tile) {
    case CodeTile::kFew8:
      return launch_codes<CodeShape<kKind, kScale, 1, 4, 1, 4, kFew>>(g, weights, "gemm_codes_8", stream);
    case CodeTile::kFew16:
      return launch_codes<CodeShape<kKind, kScale, 2, 4, 1, 4, kMore>, 1>(g, weights, "gemm_codes_16", stream);
    case CodeTile::kFew32:
      return launch_codes<CodeShape<kKind, kScale, 4, 2, 2, 2, 4>, 1>(g, weights, "gemm_codes_32", stream);
    case CodeTile::kFew64:
      return launch_codes<CodeShape<kKind, kScale, 8, 2, 2, 2, 3>, 1>(g, weights, "gemm_codes_64", stream);
    case CodeTile::kSmall8:
      return launch_codes<CodeShape<kKind, kScale, 1, 2, 1, 8, kSmall>, 1>(g, weights, "gemm_codes_small_8", stream);
    case CodeTile::kSmall16:
      return launch_codes<CodeShape<kKind, kScale, 2, 2, 1, 8, 2>, 1>(g, weights, "gemm_codes_small_16", stream);
    case CodeTile::kSmall32:
      return launch_codes<CodeShape<kKind, kScale, 4, 2, 1, 4, 3>, 1>(g, weights, "gemm_codes_small_32", stream);
    case CodeTile::kSmall64:
      return launch_codes<CodeShape<kKind, kScale, 8, 2, 1, 4, 2>, 1>(g, weights, "gemm_codes_small_64", stream);
    case CodeTile::kFixed8:
      return launch_codes<CodeShape<kKind, kScale, 1, 1, 4, 1, 6>>(g, weights, "gemm_codes_fixed_8", stream);
    case CodeTile::kFixed64:
      return launch_codes<CodeShape<kKind, kScale, 8, 2, 4, 1, 4>>(g, weights, "gemm_codes_fixed_64", stream);
    case CodeTile::kSimple:
    case CodeTile::kWgmma:
      break;
  }
  return gemm_codes_simple(g, weights, stream);
}

// With zero points, which only files have: the tiles that choose_codes() names for them.
template <CodeKind kKind, CodeScale kScale>
Status launch_zeros(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream) {
  switch (tile) {
    case CodeTile::kFew8:
      return launch_codes<CodeShape<kKind, kScale, 1, 4, 1, 4, 4, true>>(g, weights, "gemm_codes_zeros_8", stream);
    case CodeTile::kFixed8:
      return launch_codes<CodeShape<kKind, kScale, 1, 1, 4, 1, 6, true>>(g, weights, "gemm_codes_zeros_fixed_8",
                                                                         stream);
    case CodeTile::kFixed64:
      return launch_codes<CodeShape<kKind, kScale, 8, 2, 4, 1, 4, true>>(g, weights, "gemm_codes_zeros_64", stream);
    default:
      break;
  }
  return gemm_codes_simple(g, weights, stream);
}

}  // namespace tern::cuda
