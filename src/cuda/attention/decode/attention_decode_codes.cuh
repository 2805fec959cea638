// The tiles of attention_decode_tma.cuh of a cache of codes. Codes become float16 in registers, which holds each of
// them and costs half of what bfloat16 does; so queries and weights are float16, too, divided by powers of two that
// keep them in its range. Scales of keys are applied to scores, those of values to weights.
//
// Copies leave codes in rows of 128 bytes, 16 bytes of row r at place c ^ (r & 7). A lane reads 16 codes of a key at a
// time, or four tokens' codes of two to four columns of the values, which lie beside each other in the cache: which
// columns (of the first product) and which tokens and columns (of the second) are a lane's follows from that.
#pragma once

#include "cuda/attention/codes/kv_codes.cuh"
#include "cuda/attention/decode/attention_decode_qkv.cuh"
#include "cuda/ptx/code_halves_sm90.cuh"

namespace tern::cuda {
namespace {

using namespace hopper;

inline constexpr int kSpareBits = 8;  // of float16, below the largest value

// Four codes.
template <KvCode kCode>
__device__ __forceinline__ HalfPairs half_pairs(uint32_t w) {
  return kCode == KvCode::kInt8 ? int8_halves(w) : e4m3_halves(w);
}

// Where 16 bytes lie that begin at `byte` of a tile.
__device__ __forceinline__ const char* code_piece(const char* tile, int byte) {
  return tile + (byte & ~0x7f) + (((byte >> 4 & 7) ^ (byte >> 7 & 7)) << 4);
}

// Which key of eight row `row` of a fragment has: neighbouring lanes' four then lie in different banks.
template <class S>
__device__ __forceinline__ int code_key(int row) {
  return S::kD == 64 ? row : (row & 1) << 2 | row >> 1;
}

// Queries as the narrow side of the first product: of 64 columns a lane has 16 from 16 (lane % 4) on, four in each of
// four steps. `scale`: what scores of a lane's queries are multiplied by.
template <class S>
__device__ __forceinline__ void code_queries(const AttentionArgs& a, const AttentionUnit& u,
                                             uint32_t (&q)[S::kN][S::kSteps][2], float (&scale)[2 * S::kN]) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int n = 0; n < S::kN; ++n) {
    const int i = 8 * n + lane / 4;
    const bool in = i < u.queries();
    const int token = u.tokens == 1 ? 0 : i / u.heads, head = i - token * u.heads;
    const bf* from = static_cast<const bf*>(a.q) +
                     (in ? (u.token0 + token) * a.q_token + (u.head0 + head) * a.q_head : 0) + lane % 4 * 16;
    Vec8 x[S::kD / 32] = {};
    float top = 0.0f;
#pragma unroll
    for (int k = 0; k < S::kD / 32; ++k) {
      const int at = k / 2 * 64 + k % 2 * 8;
      if (in) x[k] = load8(from + at);
      scale_query(a, u, at + lane % 4 * 16, x[k]);
#pragma unroll
      for (int j = 0; j < 8; ++j) top = fmaxf(top, fabsf(x[k].v[j]));
    }
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const HalfRange<kSpareBits> range(__float_as_uint(top));
#pragma unroll
    for (int k = 0; k < 2 * S::kSteps; ++k) {
      const float* v = x[k / 4].v + k % 4 * 2;
      q[n][k / 2][k % 2] = pack_halves(v[0] * range.down, v[1] * range.down);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
      scale[2 * n + j] = __fmul_rn(__shfl_sync(0xffffffffu, range.up, lane % 4 * 8 + 4 * j), a.scale_log2);
  }
}

// Scores of this warp's 16 keys of a tile, to `scores`, in the order of the keys.
template <class S>
__device__ __forceinline__ void code_scores(const char* keys, const float* scales,
                                            const uint32_t (&q)[S::kN][S::kSteps][2], const float (&scale)[2 * S::kN],
                                            int j0, const int (&visible)[2 * S::kN], float* scores) {
  const int lane = threadIdx.x & 31, key = threadIdx.x / 32 * 16 + code_key<S>(lane / 4);
  float s[S::kN][2][4] = {};
  uint4 x[S::kD / 64][2];
#pragma unroll
  for (int i = 0; i < S::kD / 32; ++i) {
    const int byte = (key + i % 2 * 8) * S::kD + i / 2 * 64 + lane % 4 * 16;
    x[i / 2][i % 2] = *reinterpret_cast<const uint4*>(code_piece(keys, byte));
  }
  const float mine[2] = {scales[key], scales[key + 8]};
#pragma unroll
  for (int k = 0; k < S::kSteps; ++k) {
    const uint4 &lower = x[k / 4][0], &upper = x[k / 4][1];
    const uint32_t words[2][4] = {{lower.x, lower.y, lower.z, lower.w}, {upper.x, upper.y, upper.z, upper.w}};
    const HalfPairs g = half_pairs<S::kCode>(words[0][k % 4]), h = half_pairs<S::kCode>(words[1][k % 4]);
#pragma unroll
    for (int n = 0; n < S::kN; ++n) mma_halves(s[n][k % 2], {g.low, h.low, g.high, h.high}, q[n][k]);
  }
  float* to = scores + lane % 4 * 2 * S::kPitch + key;
#pragma unroll
  for (int n = 0; n < S::kN; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float v = __fmul_rn(__fadd_rn(s[n][0][i], s[n][1][i]), __fmul_rn(scale[2 * n + i % 2], mine[i / 2]));
      to[(8 * n + i % 2) * S::kPitch + i / 2 * 8] = j0 + key + i / 2 * 8 < visible[2 * n + i % 2] ? v : -INFINITY;
    }
  }
}

// Weights of a tile times the scales of its values, as the narrow side of the second product; m and l of the tile.
// `up`: what weights, and so what the product makes of them, must be multiplied by. keys: tokens that exist; what
// stands behind them may be anything.
template <class S>
__device__ __forceinline__ void code_softmax(const float* scores, const float* scales, int keys,
                                             uint32_t (&p)[S::kN][4][2], DecodeState<S>& tile, float& up) {
  const int lane = threadIdx.x & 31;
  const float2 two = *reinterpret_cast<const float2*>(scales + 2 * lane);
  const uint32_t first = 2 * lane < keys ? __float_as_uint(two.x) : 0,
                 second = 2 * lane + 1 < keys ? __float_as_uint(two.y) : 0;
  const HalfRange<kSpareBits> range(__reduce_max_sync(0xffffffffu, max(first, second)));
  up = range.up;
  float v[16];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float4 four = *reinterpret_cast<const float4*>(scales + 16 * k + lane % 4 * 4);
    v[4 * k] = four.x, v[4 * k + 1] = four.y, v[4 * k + 2] = four.z, v[4 * k + 3] = four.w;
  }
  if (keys < kDecodeTile) {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = i / 4 * 16 + lane % 4 * 4 + i % 4 < keys ? v[i] : 0.0f;
  }
#pragma unroll
  for (int n = 0; n < S::kN; ++n) {
    float s[16], top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float4 four =
          *reinterpret_cast<const float4*>(scores + (8 * n + lane / 4) * S::kPitch + 16 * k + lane % 4 * 4);
      s[4 * k] = four.x, s[4 * k + 1] = four.y, s[4 * k + 2] = four.z, s[4 * k + 3] = four.w;
      top = fmaxf(top, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
    }
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float base = __fadd_rn(top == -INFINITY ? 0.0f : top, range.log2);
#pragma unroll
    for (int i = 0; i < 16; ++i) s[i] = power2(__fsub_rn(s[i], base));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* w = s + 4 * k;
      sum = __fadd_rn(sum, __fadd_rn(__fadd_rn(w[0], w[1]), __fadd_rn(w[2], w[3])));
      p[n][k][0] = pack_halves(__fmul_rn(w[0], v[4 * k]), __fmul_rn(w[1], v[4 * k + 1]));
      p[n][k][1] = pack_halves(__fmul_rn(w[2], v[4 * k + 2]), __fmul_rn(w[3], v[4 * k + 3]));
    }
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
    sum = __fmul_rn(__fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2)), up);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      tile.m[2 * n + i] = __shfl_sync(0xffffffffu, top, lane % 4 * 8 + 4 * i);
      tile.l[2 * n + i] = __shfl_sync(0xffffffffu, sum, lane % 4 * 8 + 4 * i);
    }
  }
}

// Four tokens' codes of one column, of which `keys` exist.
template <class S>
__device__ __forceinline__ uint32_t known_codes(uint32_t word, int keys) {
  // Bytes that are no numbers would leave their mark on sums; int8 has none.
  if (S::kCode == KvCode::kInt8 || keys >= 4) return word;
  return keys <= 0 ? 0 : word & ((1u << 8 * keys) - 1);
}

// Sums of this warp's columns over a tile, of which `keys` exist.
template <class S>
__device__ __forceinline__ void code_values(const char* values, const uint32_t (&p)[S::kN][4][2], int keys, float up,
                                            DecodeState<S>& tile) {
  static_assert(S::kD == 64 || S::kD == 128);
  constexpr int kWords = 2 * S::kRows;  // columns of a lane
  const int lane = threadIdx.x & 31, column = S::column(threadIdx.x, 0, 0);
#pragma unroll
  for (int i = 0; i < S::kValues; ++i) tile.v[i / 4 / S::kN][i / 4 % S::kN][i % 4] = 0.0f;
  uint32_t w[4][kWords];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int byte = ((4 * k + lane % 4) * S::kD + column) * 4;
    const char* from = code_piece(values, byte) + byte % 16;
    if constexpr (kWords == 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(from);
      w[k][0] = x.x, w[k][1] = x.y, w[k][2] = x.z, w[k][3] = x.w;
    } else {
      const uint2 x = *reinterpret_cast<const uint2*>(from);
      w[k][0] = x.x, w[k][1] = x.y;
    }
    if (keys < kDecodeTile) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) w[k][i] = known_codes<S>(w[k][i], keys - 16 * k - lane % 4 * 4);
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const HalfPairs g = half_pairs<S::kCode>(w[k][2 * r]), h = half_pairs<S::kCode>(w[k][2 * r + 1]);
#pragma unroll
      for (int n = 0; n < S::kN; ++n) mma_halves(tile.v[r][n], {g.low, h.low, g.high, h.high}, p[n][k]);
    }
  }
#pragma unroll
  for (int i = 0; i < S::kValues; ++i) {
    float& x = tile.v[i / 4 / S::kN][i / 4 % S::kN][i % 4];
    x = __fmul_rn(x, up);
  }
}

// decode_tiles() of attention_decode_tma.cuh. A tile's values are waited for before its softmax, which needs their
// scales.
template <class S, class Fold, class Begun>
requires(S::kCodes) __device__ __forceinline__
    void decode_tiles(const AttentionArgs& a, const DecodePiece& p, const DecodeShared<S>& sh, DecodePlace<S>& at,
                      int& turn, const Fold& fold, const Begun& begun) {
  const int lane = threadIdx.x & 31;
  uint32_t q[S::kN][S::kSteps][2];
  float scale[2 * S::kN];
  code_queries<S>(a, p.u, q, scale);
  begun();
  int visible[2 * S::kN];
#pragma unroll
  for (int i = 0; i < 2 * S::kN; ++i) visible[i] = p.u.visible(i / 2 * 8 + lane % 4 * 2 + i % 2);
  const int end = p.u.most();
  const auto done = [&] {  // the place may be filled again
    __syncwarp();
    if (lane == 0) barrier_arrive(&sh.free[at.stage]);
    at.next();
  };
  for (int t = p.from; t < p.to; ++t, turn ^= 1) {
    float* scores = sh.scores + turn * S::kScores;
    const int keys = end - t * kDecodeTile;
    barrier_wait(&sh.full[at.stage], at.phase);
    code_scores<S>(sh.ring + at.stage * S::kStageBytes, sh.scales + at.stage * kDecodeTile, q, scale, t * kDecodeTile,
                   visible, scores);
    done();
    computing_sync();
    barrier_wait(&sh.full[at.stage], at.phase);
    uint32_t w[S::kN][4][2];
    DecodeState<S> tile;
    float up = 0.0f;
    code_softmax<S>(scores, sh.scales + at.stage * kDecodeTile, keys, w, tile, up);
    code_values<S>(sh.ring + at.stage * S::kStageBytes, w, keys, up, tile);
    done();
    fold(t, tile);
  }
}

}  // namespace
}  // namespace tern::cuda
