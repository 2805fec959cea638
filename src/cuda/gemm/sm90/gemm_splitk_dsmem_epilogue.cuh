// How the blocks of gemm_splitk_dsmem.cuh exchange their parts and what becomes of the sums.
#pragma once

#include "cuda/gemm/epilogues/norm_epilogue.cuh"
#include "cuda/gemm/sm90/gemm_splitk_dsmem.cuh"

namespace tern::cuda {

// A block's share of a tile: sums number i of a tile are quad i / kWorkers of thread i % kWorkers; each of the
// cluster's blocks has an equal share of neighbouring ones.
template <class Tile, int kSplit>
struct SplitKShare {
  static constexpr int kShare = Tile::kQuads * Tile::kWorkers / kSplit;
  static constexpr int kTurns = kShare < Tile::kWorkers ? 1 : kShare / Tile::kWorkers;  // quads of a thread
  static constexpr int kTokens = Tile::kTokens / kSplit < 8 ? 8 : Tile::kTokens / kSplit;
  static_assert(kShare % 32 == 0);  // a warp has 16 columns whole, whose squares are added up
  static __device__ __forceinline__ bool mine() {
    return kShare >= Tile::kWorkers || static_cast<int>(threadIdx.x) < kShare;
  }
};

// To all blocks what is theirs of this block's part.
template <class Tile, int kSplit>
__device__ __forceinline__ void send_part(const SplitKRing<Tile>& ring, int rank, const typename Tile::Sums& acc) {
  constexpr int kShare = SplitKShare<Tile, kSplit>::kShare;
  const uint32_t zone = hopper::shared_address(ring.weights) + static_cast<uint32_t>(rank * kShare) * 16;
  const uint32_t landed = hopper::shared_address(ring.landed);
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    const uint32_t i = q * Tile::kWorkers + threadIdx.x, to = i / kShare;
    splitk_dsmem_store(splitk_dsmem_address(zone + i % kShare * 16, static_cast<int>(to)),
                       splitk_dsmem_address(landed, static_cast<int>(to)), acc[4 * q], acc[4 * q + 1], acc[4 * q + 2],
                       acc[4 * q + 3]);
  }
}

// The scales of a norm before the product, of the tokens of the block's share, by one warp.
template <class Tile, int kSplit>
__device__ __forceinline__ void splitk_dsmem_scales(const Gemm& g, int rank, float* scales) {
  constexpr int kTokens = SplitKShare<Tile, kSplit>::kTokens, kLanes = kTokens >= 32 ? 1 : 32 / kTokens, kTogether = 4;
  const int lane = threadIdx.x & 31, first = rank * Tile::kQuads / kSplit * 8, count = g.before.parts / 4;
  for (int t = lane / kLanes; t < kTokens; t += 32 / kLanes) {
    const int token = first + t;
    const auto* from = reinterpret_cast<const float4*>(g.before.squares + token * g.before.parts);
    float sum = 0.0f;
    for (int p = lane % kLanes; token < g.rows && p < count; p += kTogether * kLanes) {
      float4 v[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        v[i] = p + i * kLanes < count ? from[p + i * kLanes] : make_float4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
#pragma unroll
    for (int d = 1; d < kLanes; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane % kLanes == 0) scales[token] = token < g.rows ? norm_scale(g.before, sum, g.k) : 0.0f;
  }
}

// A thread's quads of the share: each two rows of the weight, 8 apart, and two tokens; from turn to turn eight tokens.
// All that does not depend on rows of other kernels is there before the wait.
template <class Tile, int kSplit>
class SplitKEpilogue {
 public:
  __device__ __forceinline__ SplitKEpilogue(const Gemm& g, const SplitKWork& work) {
    const int at = work.rank * Share::kShare + static_cast<int>(threadIdx.x), thread = at % Tile::kWorkers;
    token_ = at / Tile::kWorkers * 8 + thread % 4 * 2, count_ = static_cast<int>(g.rows) - token_;
    // Of a warp's 16 rows of the weight 8 are columns of out where there is a gate.
    const int lane = thread % 32 / 4, half = g.gated ? 2 : 1;
    const int64_t n = g.n / half, col = int64_t{work.tile} * (Tile::kRows / half) + thread / 32 * (16 / half) + lane;
    first_ = col < n, second_ = g.gated || col + 8 < n;
    if (g.bias != nullptr) {
      if (first_) bias_[0] = g.bias[col];
      if (second_ && first_) bias_[1] = g.bias[g.gated ? n + col : col + 8];
    }
    normed_ = g.after.residual != nullptr;
    if (normed_) {
      weight_[0] = norm_weight(g.after, col), weight_[1] = norm_weight(g.after, col + 8);
      to_ = reinterpret_cast<char*>(g.after.residual + token_ * g.after.residual_row + col);
      x_ = static_cast<bf*>(g.after.x) + token_ * g.after.x_row + col;
      squares_ = g.after.squares + token_ * g.after.parts + col / 16;
      settle(x_), settle(squares_);
    } else {
      to_ = static_cast<char*>(g.out) + (token_ * g.out_row + col) * (g.out_bf16 ? 2 : 4);
    }
    settle(to_), settle(count_);
  }
  // What a norm behind the product adds to, behind the wait.
  __device__ __forceinline__ void load(const Gemm& g) {
    if (!normed_ || !Share::mine()) return;
#pragma unroll
    for (int t = 0; t < Share::kTurns; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* from = residual(g, t, i);
        const bool there = 8 * t + i < count_;
        old_[t][i][0] = there ? from[0] : 0.0f, old_[t][i][1] = there ? from[8] : 0.0f;
      }
    }
  }
  // Adds up the parts in the order of blocks: the bits of gemm_wgmma.
  __device__ __forceinline__ void finish(const Gemm& g, const SplitKRing<Tile>& ring, const float* scales) const {
    splitk_dsmem_receive(ring.landed);
    if (!Share::mine()) return;
    const auto* zone = reinterpret_cast<const float4*>(ring.weights) + threadIdx.x;
#pragma unroll
    for (int t = 0; t < Share::kTurns; ++t) {
      float4 v[kSplit];
#pragma unroll
      for (int s = 0; s < kSplit; ++s) v[s] = zone[s * Share::kShare + t * Tile::kWorkers];
      float4 sum = v[0];
#pragma unroll
      for (int s = 1; s < kSplit; ++s) sum = add_four(sum, v[s]);
      if (g.before.squares != nullptr) {
        const float2 by = *reinterpret_cast<const float2*>(scales + token_ + 8 * t);
        sum.x *= by.x, sum.z *= by.x, sum.y *= by.y, sum.w *= by.y;
      }
      if (normed_) {
        epilogue_normed(g, t, sum);
        continue;
      }
      sum.x += bias_[0], sum.y += bias_[0], sum.z += bias_[1], sum.w += bias_[1];
      store(g, t, sum);
    }
  }

 private:
  using Share = SplitKShare<Tile, kSplit>;
  __device__ __forceinline__ float* residual(const Gemm& g, int turn, int token) const {
    return reinterpret_cast<float*>(to_) + (8 * turn + token) * g.after.residual_row;
  }
  __device__ __forceinline__ void epilogue_normed(const Gemm& g, int turn, const float4& sum) const {
    const float v[2][2] = {{sum.x + old_[turn][0][0], sum.z + old_[turn][0][1]},
                           {sum.y + old_[turn][1][0], sum.w + old_[turn][1][1]}};
    float square[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (8 * turn + i >= count_) continue;
      float* const sums = residual(g, turn, i);
      bf* const x = x_ + (8 * turn + i) * g.after.x_row;
      sums[0] = v[i][0], sums[8] = v[i][1];
      x[0] = from_float<bf>(v[i][0] * weight_[0]), x[8] = from_float<bf>(v[i][1] * weight_[1]);
      square[i] = v[i][0] * v[i][0] + v[i][1] * v[i][1];
    }
#pragma unroll
    for (int d = 4; d < 32; d *= 2) {
#pragma unroll
      for (float& s : square) s += __shfl_xor_sync(0xffffffffu, s, d);
    }
    if ((threadIdx.x & 31) >= 4) return;
    float* const to = squares_ + 8 * turn * g.after.parts;
    if (8 * turn < count_) to[0] = square[0];
    if (8 * turn + 1 < count_) to[g.after.parts] = square[1];
  }
  // Sums of (first token, first row of the weight), (second, first), (first, second), (second, second).
  __device__ __forceinline__ void store(const Gemm& g, int turn, float4 v) const {
    if (g.gated) v.x = silu(v.x) * v.z, v.y = silu(v.y) * v.w;
    const bool both = second_ && !g.gated;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (8 * turn + i >= count_ || !first_) continue;
      const float a = i == 0 ? v.x : v.y, b = i == 0 ? v.z : v.w;
      const int64_t row = (8 * turn + i) * g.out_row;
      if (g.out_bf16) {
        bf* const to = reinterpret_cast<bf*>(to_) + row;
        to[0] = from_float<bf>(a);
        if (both) to[8] = from_float<bf>(b);
      } else {
        float* const to = reinterpret_cast<float*>(to_) + row;
        to[0] = a;
        if (both) to[8] = b;
      }
    }
  }
  char* to_;  // of the first token and column: the residual, or out
  bf* x_ = nullptr;
  float* squares_ = nullptr;
  float weight_[2] = {}, bias_[2] = {-0.0f, -0.0f};  // what is added to nothing must not change its sign
  float old_[Share::kTurns][2][2];
  int token_, count_;  // count: from the first token on
  bool first_, second_, normed_;
};

}  // namespace tern::cuda
