// Tiles of the portable kernels for codes, and what a block of one has to do.
#pragma once

#include "cuda/gemm/codes/choice_codes.h"
#include "cuda/ptx/kernel_util.cuh"

namespace tern::cuda {

// How scales are met: one per row, groups of 64 or 128 columns, two groups in a block.
enum class CodeScale : uint8_t { kRow, kBlocks, kHalves };

// kTok: tiles of eight tokens; kTall: stripes of a warp; kWarpsN x kWarpsK warps.
template <CodeKind kKindOf, CodeScale kScaleOf, int kTok, int kTall, int kWarpsN, int kWarpsK, int kStages,
          bool kZerosToo = false>
struct CodeShape {
  static constexpr CodeKind kKind = kKindOf;
  static constexpr CodeScale kScale = kScaleOf;
  static constexpr int kTokTiles = kTok, kTokens = 8 * kTok, kStripes = kTall, kAcross = kWarpsN, kAlong = kWarpsK;
  static constexpr int kDepth = kStages, kWarps = kWarpsN * kWarpsK, kThreads = 32 * kWarps;
  static constexpr int kTiles = kWarpsN * kTall, kRows = kStripe * kTiles;  // of the weight
  static constexpr int kUnit = kKindOf == CodeKind::kInt4 ? 512 : 1024;     // bytes of a stripe and block
  static constexpr int kGroups = kScaleOf == CodeScale::kRow ? 0 : kScaleOf == CodeScale::kBlocks ? 1 : 2;
  static constexpr bool kZeros = kZerosToo;
  static constexpr bool kNorms = kTok <= 2 && kWarpsK > 1 && !kZerosToo;  // may stand beside norms
  static constexpr int kGroupBytes = kZeros ? 128 : 64;                   // of a stripe
  static constexpr int kCodeBytes = kWarps * kTall * kUnit, kScaleBytes = kWarps * kTall * kGroups * kGroupBytes;
  static constexpr int kPitch = kWarpsK * kCodeBlock * 2 + 16;  // bytes of a token: eight of them fall into all banks
  static constexpr int kStage = kCodeBytes + kScaleBytes + kTokens * kPitch;
  static constexpr int kSumPitch = kRows + 4;
  static constexpr size_t kSums = size_t{kWarpsK} * kTokens * kSumPitch * 4;
  static constexpr size_t kBytes = size_t{kStages} * kStage > kSums ? size_t{kStages} * kStage : kSums;
  static_assert(kBytes <= 99 * 1024);
};

// What a block has: rows [row0, row_end) of tokens.
struct CodeBlock {
  const char* w;
  int64_t row0, row_end, head;
};

template <class S>
__device__ __forceinline__ int tokens_of(const CodeBlock& b) {
  return b.row_end - b.row0 < S::kTokens ? static_cast<int>(b.row_end - b.row0) : S::kTokens;
}

// The stripe of the weight that is this block's number `tile`.
template <class S>
__device__ __forceinline__ int stripe_of(const CodeGemm& g, int tile) {
  const int x = static_cast<int>(blockIdx.x);
  if (!g.gated) return x * S::kTiles + tile;
  constexpr int kHalf = S::kTiles / 2;
  return tile < kHalf ? x * kHalf + tile : g.w.n / (2 * kStripe) + x * kHalf + tile - kHalf;
}

}  // namespace tern::cuda
