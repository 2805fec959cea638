// Codes times bfloat16 tokens on Hopper: as gemm_wgmma (gemm/sm90), rows of the weight are the tall side of wgmma and
// tokens its wide one, but the weight comes as codes through the copy engine and is widened in registers, which wgmma
// takes as its left operand. A warp has a stripe of 16 weight rows. Where a row has one scale, it goes onto the whole
// sum; scales of groups go onto the sums of 32 or 64 columns.
#pragma once

#include "cuda/gemm/codes/codes_widen.cuh"
#include "cuda/gemm/sm90/gemm_wgmma_run.cuh"
#include "cuda/ptx/wgmma_left.cuh"

namespace tern::cuda {

inline constexpr int kCodesStep = 128;  // columns of a stage

// kSpan: columns whose sums meet a scale, 32, 64 or 128, or 0: a scale per row. kGroups: warpgroups, each with up to 64
// rows of the weight. kBlocks: of a multiprocessor.
template <CodeKind kKind_, int kSpan_, int kTokens_, int kGroups_, int kBlocks_>
struct CodesTile {
  static constexpr CodeKind kKind = kKind_;
  static constexpr int kSpan = kSpan_, kTokens = kTokens_, kGroups = kGroups_, kBlocks = kBlocks_;
  static constexpr int kRows = 64 * kGroups, kWorkers = 128 * kGroups, kThreads = kWorkers + 32;
  static constexpr int kStripes = kRows / kStripe;
  static constexpr int kUnit = kKind == CodeKind::kInt4 ? 512 : 1024;  // bytes of a stripe and 64 columns
  static constexpr int kCodes = kStripes * 2 * kUnit,
                       kBox = kTokens * 128;  // bytes of a stage; of 64 columns of tokens
  static constexpr int kScales = kSpan == 0 ? 0 : (kStripes * (kSpan == 32 ? 256 : 128) + 1023) / 1024 * 1024;
  static constexpr int kStage = 2 * kBox + kCodes + kScales;
  static constexpr int kPartRow = kRows + 4, kPart = kTokens * kPartRow * 4;
  static constexpr int kMostDepth = 12;
  // Of the 228 KiB of a multiprocessor a block takes one for the system, and two for barriers, scales and alignment.
  static constexpr int kRoom = 228 * 1024 / kBlocks - 3072;
  static constexpr int kDepth = kRoom / kStage < kMostDepth ? kRoom / kStage : kMostDepth;
  static_assert(kDepth >= 2 && kPart <= kRoom);
};

// A tile has `stripes` of the weight, with a gate half of them of gate and half of up: as many as share the weight out
// evenly.
struct CodesGrid : HopperGrid {
  using HopperGrid::HopperGrid;
  int stripes = 0, depth = 0, groups = 0;  // stages of the ring; scales of a stripe in a stage
  int bytes = 0;                           // of a stage
};

template <class T>
__device__ HopperWork codes_work(const Gemm& g, const CodesGrid& grid, int rank) {
  HopperWork w = work_of<T>(g, grid, rank);
  const int64_t rows = g.gated ? T::kRows / 2 : T::kRows;
  w.col0 = w.col0 / rows * (grid.stripes * kStripe / (g.gated ? 2 : 1));
  return w;
}

template <class T>
struct CodesRing {
  char* stages;
  uint64_t *full, *empty;
  int depth;
  static constexpr int begin = 0;
  __device__ char* x(int s) const { return stages + s * T::kStage; }
  __device__ char* codes(int s) const { return x(s) + 2 * T::kBox; }
  __device__ char* scales(int s) const { return codes(s) + T::kCodes; }
};

struct CodesMaps {
  CUtensorMap x, codes, scales;
};

// Number s of a tile's stripes: which of the weight it is.
__device__ __forceinline__ int tile_stripe(const Gemm& g, const CodesGrid& grid, const HopperWork& work, int s) {
  const int first = static_cast<int>(work.col0) / kStripe, half = grid.stripes / 2;
  if (!g.gated || s < half) return first + s;
  return static_cast<int>(g.n) / (2 * kStripe) + first + s - half;
}

// Copies the codes and scales of stage number k of the weight; of a gate in two boxes.
template <class T>
__device__ __forceinline__ void copy_codes(const Gemm& g, const CodesGrid& grid, const HopperWork& work,
                                           const CodesRing<T>& ring, const CodesMaps& maps, int s, int k) {
  constexpr int kPieces = 2 * T::kUnit / 512;  // of a stripe
  hopper::barrier_expect(ring.full + s, static_cast<uint32_t>(grid.bytes));
  const int box = g.gated ? grid.stripes / 2 : grid.stripes;
  for (int i = 0; i < grid.stripes; i += box) {
    const int stripe = tile_stripe(g, grid, work, i);
    hopper::load_box(ring.codes(s) + i * 2 * T::kUnit, &maps.codes, ring.full + s, 0, k * kPieces, stripe,
                     grid.weight_policy);
    if constexpr (T::kSpan > 0) {
      hopper::load_box(ring.scales(s) + (i > 0 ? T::kScales / 2 : 0), &maps.scales, ring.full + s, 0, k * grid.groups,
                       stripe, grid.weight_policy);
    }
  }
}

template <class T>
__device__ __forceinline__ void copy_tokens(const CodesRing<T>& ring, const HopperWork& work, const CodesMaps& maps,
                                            int s, int k) {
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    hopper::load_box(ring.x(s) + u * T::kBox, &maps.x, ring.full + s, k * kCodesStep + 64 * u,
                     static_cast<int>(work.row0), hopper::kEvictLast);
  }
}

// Fills the ring. One thread.
template <class T>
__device__ void fill_codes(const Gemm& g, const CodesGrid& grid, const HopperWork& work, const CodesRing<T>& ring,
                           const CodesMaps& maps) {
  const int steps = work.last - work.first, ahead = min(steps, ring.depth);
  for (int i = 0; i < ahead; ++i) copy_codes<T>(g, grid, work, ring, maps, i, work.first + i);
  wait_for_previous();  // weights are never written by a step, x is
  for (int i = 0; i < ahead; ++i) copy_tokens<T>(ring, work, maps, i, work.first + i);
  uint32_t parity = 0;
  for (int i = ahead, s = 0; i < steps; ++i) {
    hopper::barrier_wait(ring.empty + s, parity);
    copy_codes<T>(g, grid, work, ring, maps, s, work.first + i);
    copy_tokens<T>(ring, work, maps, s, work.first + i);
    if (++s == ring.depth) s = 0, parity ^= 1;
  }
}

// Which stripes of a stage a warp has rows r and r + 8 of: of one, or, `pairs`, the same half of a gate's and an up's.
struct WarpStripes {
  int first, second;
  bool pairs, upper;
};

// 16 bytes of a lane as words (row r, r + 8, r, r + 8).
__device__ __forceinline__ uint4 lane_words(const char* stage, const WarpStripes& w, int stripe_bytes, int at) {
  const auto v = *reinterpret_cast<const uint4*>(stage + w.first * stripe_bytes + at);
  if (!w.pairs) return v;
  const auto u = *reinterpret_cast<const uint4*>(stage + w.second * stripe_bytes + at);
  return w.upper ? make_uint4(v.y, u.y, v.w, u.w) : make_uint4(v.x, u.x, v.z, u.z);
}

// Two steps of wgmma: 32 columns, number h of a stage's four. int4 keeps the codes of the next 32 in `more`.
template <class T, class R>
__device__ __forceinline__ void widen_half(const R& ring, const WarpStripes& w, int s, int h, uint2& more,
                                           uint32_t (&a)[2][4]) {
  const int at = h / 2 * T::kUnit + static_cast<int>(threadIdx.x & 31) * 16;
  WideCodes v;
  if constexpr (T::kKind == CodeKind::kInt4) {
    if (h % 2 == 0) {
      const uint4 c = lane_words(ring.codes(s), w, 2 * T::kUnit, at);
      v = Widen<T::kKind>::wide({c.x, c.y}), more = make_uint2(c.z, c.w);
    } else {
      v = Widen<T::kKind>::wide({more.x, more.y});
    }
  } else {
    const uint4 c = lane_words(ring.codes(s), w, 2 * T::kUnit, at + h % 2 * 512);
    v = Widen<T::kKind>::wide({c.x, c.y, c.z, c.w});
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = v.a[k][i];
  }
}

// The warpgroup's sums, for a scale per row: products of 64 columns run while the next ones are widened. done(i): what
// step i has of the ring has been read. R: x(s), codes(s), scales(s), full, begin, depth.
template <class T, class R, class Done>
__device__ __forceinline__ void multiply_rows(const R& ring, const WarpStripes& w, int steps,
                                              float (&acc)[T::kTokens / 2], Done&& done) {
  uint32_t a[2][2][2][4];
  uint32_t parity = 0;
#pragma unroll 1
  for (int i = 0, s = ring.begin, lap = 0; i < steps; ++i) {
    const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
    hopper::barrier_wait(ring.full + s, parity);
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      uint2 more{};
      widen_half<T>(ring, w, s, 2 * u, more, a[u][0]), widen_half<T>(ring, w, s, 2 * u + 1, more, a[u][1]);
      hopper::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::WgmmaLeft<T::kTokens>::run(acc, a[u][k / 2][k % 2], b + u * (T::kBox / 16) + 2 * k, i + u + k > 0);
      hopper::wgmma_commit();
      hopper::wgmma_wait<1>();
      if (u == 0 && i > 0) done(i - 1, s == 0 ? ring.depth - 1 : s - 1);
    }
    if (++s == ring.depth) s = 0;
    if (++lap == ring.depth) lap = 0, parity ^= 1;
  }
  hopper::wgmma_wait<0>();
}

// Scales of the warp's rows r and r + 8 for column c of a stage; `first`, `second`: where those of its stripes lie.
template <class T>
__device__ __forceinline__ float2 span_scales(const CodeLayout& layout, const char* scales, const WarpStripes& w,
                                              int2 own, int c) {
  const int group = T::kSpan == kCodesStep ? 0 : c / layout.group, r = static_cast<int>(threadIdx.x & 31) / 4;
  const auto* first = reinterpret_cast<const float*>(scales + own.x + group * 64) + r;
  const auto* second = reinterpret_cast<const float*>(scales + own.y + group * 64) + r;
  const int upper = w.pairs && w.upper ? 8 : 0;
  return make_float2(first[upper], second[w.pairs ? upper : 8]);
}

// The same with scales of groups: sums of kSpan columns, times their scales, are added up. Codes of 32 columns are
// widened while the products of those before run.
template <class T, class R, class Done>
__device__ __forceinline__ void multiply_spans(const CodeLayout& layout, const R& ring, const WarpStripes& w, int2 own,
                                               int steps, float (&acc)[T::kTokens / 2], Done&& done) {
  constexpr int kHalves = T::kSpan / 32;
  uint32_t a[2][2][4];
  uint2 more{};
  float part[T::kTokens / 2];
#pragma unroll
  for (float& v : acc) v = 0.0f;
  hopper::barrier_wait(ring.full + ring.begin, 0);
  widen_half<T>(ring, w, ring.begin, 0, more, a[0]);
  uint32_t parity = 0;
#pragma unroll 1
  for (int i = 0, s = ring.begin, lap = 0; i < steps; ++i) {
    const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
    const int here = s;
    if (++s == ring.depth) s = 0;
    if (++lap == ring.depth) lap = 0, parity ^= 1;
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      hopper::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        hopper::WgmmaLeft<T::kTokens>::run(part, a[h % 2][k], b + h / 2 * (T::kBox / 16) + 2 * (h % 2 * 2 + k),
                                           h % kHalves + k > 0);
      }
      hopper::wgmma_commit();
      hopper::wgmma_wait<1>();
      if (h < 3) {
        widen_half<T>(ring, w, here, h + 1, more, a[(h + 1) % 2]);
      } else if (i + 1 < steps) {
        hopper::barrier_wait(ring.full + s, parity);
        widen_half<T>(ring, w, s, 0, more, a[0]);
      }
      if (h % kHalves != kHalves - 1) continue;
      const float2 scale = span_scales<T>(layout, ring.scales(here), w, own, (h + 1) * 32 - T::kSpan);
      hopper::wgmma_wait<0>();
#pragma unroll
      for (int j = 0; j < T::kTokens / 2; ++j) acc[j] = __fmaf_rn(j % 4 < 2 ? scale.x : scale.y, part[j], acc[j]);
    }
    done(i, here);
  }
}

// Where the scales of the warp's stripe lie in a stage: those of up begin at half, which boxes can be copied to.
template <class T>
__device__ __forceinline__ int scales_at(const Gemm& g, const CodesGrid& grid) {
  const int warp = static_cast<int>(threadIdx.x) / 32, half = grid.stripes / 2;
  return g.gated && warp >= half ? T::kScales / 2 + (warp - half) * grid.groups * 64 : warp * grid.groups * 64;
}

// Sums times the scales of rows to part[token][row] in shared memory, over the ring.
template <class T>
__device__ __forceinline__ void leave_part(const HopperWork& work, const float (&acc)[T::kTokens / 2], float2 scale,
                                           float* part) {
  const int lane = threadIdx.x & 31;
  asm volatile("bar.sync 1, %0;\n" ::"n"(T::kWorkers) : "memory");  // all warpgroups have read the ring
  float* at = part + threadIdx.x / 32 * kStripe + lane / 4;
#pragma unroll
  for (int j = 0; j < T::kTokens / 2; ++j) {
    const int token = j / 4 * 8 + lane % 4 * 2 + j % 2;
    if (token < work.count) at[token * T::kPartRow + j / 2 % 2 * 8] = acc[j] * (j % 4 < 2 ? scale.x : scale.y);
  }
}

// How the copy engine sees a product: tokens in boxes of `box`, codes and scales of `stripes` at a time.
template <class T>
Status codes_maps(const Gemm& g, const void* weight, int stripes, int groups, int box, CodesMaps* maps) {
  const CodeLayout& c = g.codes;
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, box, &maps->x));
  TERN_RETURN_IF_ERROR(tensor_map_stripes(weight, 512, c.code_bytes() / 512, c.stripes(), c.stripe_bytes(),
                                          2 * T::kUnit / 512, stripes, &maps->codes));
  if (T::kSpan == 0) return {};
  return tensor_map_stripes(static_cast<const char*>(weight) + c.code_bytes(), c.group_bytes(), c.groups(), c.stripes(),
                            c.stripe_bytes(), groups, stripes, &maps->scales);
}

}  // namespace tern::cuda
