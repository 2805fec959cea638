// Decode attention on Hopper: up to 16 queries that share a KV head, read as fast as memory gives them. A warp feeds
// tiles of 64 keys and of their values through the copy engine, four warps compute. Keys are the tall side of the
// products: of a tile every warp scores 16 keys, all warps read all scores and make the same softmax of them, and each
// has a quarter of the values' columns for itself. So nothing is exchanged between warps but scores.
//
// Every tile is a softmax of its own. A block works on one range of all tiles of the step (DecodeRange, written by the
// plan); what it makes of a range, or of a part of a unit, is in attention_decode_deterministic.cuh and
// attention_decode_split.cuh.
#pragma once

#include "cuda/attention/decode/attention_decode_codes.cuh"
#include "cuda/attention/decode/attention_decode_qkv.cuh"
#include "cuda/ptx/bulk_bytes.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {
namespace {

using namespace hopper;

// Pages of the cache as the copy engine sees them: whole tiles, and kDecodeBox keys of the last one. Of codes: rows of
// 128 bytes, of which both keys and values of a tile have S::kStageBytes without a gap.
struct DecodeMaps {
  CUtensorMap whole, last;
};

// Barriers of the ring, by all threads.
template <class S>
__device__ __forceinline__ void decode_begin(const DecodeShared<S>& sh, const DecodeMaps& maps) {
  if (threadIdx.x == 0) {
    prefetch_map(&maps.whole), prefetch_map(&maps.last);
    for (int i = 0; i < S::kStages; ++i) barrier_init(&sh.full[i], 1), barrier_init(&sh.free[i], 4);
    barrier_init_done();
  }
  __syncthreads();
}

// `keys` keys of a tile, or their values, into the next place: those from `row` of a block on, rows of all its heads'
// tokens being counted through.
template <class S>
__device__ __forceinline__ void decode_load(const AttentionArgs& a, const DecodeShared<S>& sh, const DecodePlace<S>& at,
                                            const DecodeMaps& maps, int row, int block, int keys) {
  constexpr int kWide = S::kCodes ? 1 : S::kHalves;  // boxes beside each other
  constexpr int kBoxBytes = S::kStageBytes / kWide / (kDecodeTile / kDecodeBox);
  char* to = sh.ring + at.stage * S::kStageBytes;
  uint64_t* full = &sh.full[at.stage];
  barrier_wait(&sh.free[at.stage], at.phase ^ 1);
  const bool whole = keys > kDecodeTile - kDecodeBox;
  const int boxes = whole ? kDecodeTile / kDecodeBox : (keys + kDecodeBox - 1) / kDecodeBox;
  barrier_expect(full, boxes * kBoxBytes * kWide + S::kScaleBytes);
  if constexpr (S::kCodes) {
    const char* scales = a.cache + block * a.block_stride + a.scales + int64_t{row} * 4;
    load_bytes(sh.scales + at.stage * kDecodeTile, scales, S::kScaleBytes, full, kEvictFirst);
    row = row * S::kD / 128;
  }
  if (whole) {
#pragma unroll
    for (int h = 0; h < kWide; ++h)
      load_box(to + h * S::kHalfBytes, &maps.whole, full, h * 64, row, block, kEvictFirst);
    return;
  }
  for (int i = 0; i < boxes; ++i) {
#pragma unroll
    for (int h = 0; h < kWide; ++h) {
      load_box(to + h * S::kHalfBytes + i * kBoxBytes, &maps.last, full, h * 64, row + i * (kBoxBytes / 128), block,
               kEvictFirst);
    }
  }
}

// Whether the warp that feeds need not wait for what the kernel before writes: this one has waited already, or writes
// the step's own keys and values itself.
__device__ __forceinline__ bool decode_waited(const AttentionArgs& a) {
  return !a.decode_early || a.prepare.qkv != nullptr;
}

// Keys, then values of every tile of a piece, by the warp that feeds the ring. `waited`: what the kernel before writes
// is there; else it waits at the first tile with a place that this step writes. before() comes before every tile.
template <class S, class Before>
__device__ __forceinline__ void decode_producer(const AttentionArgs& a, const DecodeMaps& maps, const DecodePiece& p,
                                                const DecodeShared<S>& sh, DecodePlace<S>& at, bool& waited,
                                                const Before& before) {
  const int lane = threadIdx.x & 31, pages = a.block_size / kDecodeTile;  // tiles of a block
  const int end = p.u.most();
  int blocks = 0;
  for (int t = p.from; t < p.to; ++t) {
    if ((t - p.from) % 32 == 0) {
      const int tile = min(t + lane, p.to - 1);
      blocks = a.table[p.u.row * a.table_stride + (pages == 1 ? tile : tile / pages)];
    }
    const int block = __shfl_sync(0xffffffffu, blocks, (t - p.from) % 32);
    if (!waited && (t + 1) * kDecodeTile > p.known) {
      wait_for_previous();
      waited = true;
    }
    before();
    const int row = p.u.kv_head * a.block_size + (pages == 1 ? 0 : t % pages * kDecodeTile);
    if (lane == 0) decode_load<S>(a, sh, at, maps, row, block, end - t * kDecodeTile);
    at.next();
    if (lane == 0) decode_load<S>(a, sh, at, maps, row + a.kv_heads * a.block_size, block, end - t * kDecodeTile);
    at.next();
  }
}

template <class S>
__device__ __forceinline__ void decode_producer(const AttentionArgs& a, const DecodeMaps& maps, const DecodePiece& p,
                                                const DecodeShared<S>& sh, DecodePlace<S>& at, bool& waited) {
  decode_producer<S>(a, maps, p, sh, at, waited, [] {});
}

// Queries as the narrow side of the products.
template <class S>
__device__ __forceinline__ void decode_queries(const AttentionArgs& a, const AttentionUnit& u,
                                               uint32_t (&q)[S::kN][S::kSteps][2]) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int n = 0; n < S::kN; ++n) {
    const int i = 8 * n + lane / 4;
    const bool in = i < u.queries();
    const int token = u.tokens == 1 ? 0 : i / u.heads, head = i - token * u.heads;
    const int64_t at = in ? (u.token0 + token) * a.q_token + (u.head0 + head) * a.q_head + lane % 4 * 2 : 0;
#pragma unroll
    for (int k = 0; k < 2 * S::kSteps; ++k) {
      uint32_t x = 0;
      if (in && a.q_f32) {
        const float2 y = *reinterpret_cast<const float2*>(static_cast<const float*>(a.q) + at + 8 * k);
        x = pack2(y.x, y.y);
      } else if (in) {
        x = *reinterpret_cast<const uint32_t*>(static_cast<const bf*>(a.q) + at + 8 * k);
      }
      q[n][k / 2][k % 2] = x;
    }
  }
}

// Scores of this warp's 16 keys of a tile, to `scores`: of every 16 keys in the order 0 1 8 9 2 3 10 11 ..., as the
// second product takes them.
template <class S>
__device__ __forceinline__ void decode_scores(const char* keys, const uint32_t (&q)[S::kN][S::kSteps][2], float scale,
                                              int j0, const int (&visible)[2 * S::kN], float* scores) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, row = 16 * warp + lane % 16;
  float s[S::kN][2][4] = {};
  constexpr int kTogether = S::kSteps < 8 ? S::kSteps : 8;  // loads under way
#pragma unroll
  for (int k0 = 0; k0 < S::kSteps; k0 += kTogether) {
    uint32_t b[kTogether][4];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int k = k0 + i;
      load_matrix4(b[i], keys + k / 4 * S::kHalfBytes + row * 128 + (((k % 4 * 2 + lane / 16) ^ (row & 7)) * 16));
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int n = 0; n < S::kN; ++n) mma(s[n][i % 2], b[i], q[n][k0 + i]);
    }
  }
  const int g = lane / 4, key = j0 + 16 * warp + g;
  float* to = scores + lane % 4 * 2 * S::kPitch + 16 * warp + g / 2 * 4 + g % 2;
#pragma unroll
  for (int n = 0; n < S::kN; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = __fmul_rn(__fadd_rn(s[n][0][i], s[n][1][i]), scale);
      to[(8 * n + i % 2) * S::kPitch + i / 2 * 2] = key + i / 2 * 8 < visible[2 * n + i % 2] ? x : -INFINITY;
    }
  }
}

// Weights of a tile as the narrow side of the second product; m and l of the tile.
template <class S>
__device__ __forceinline__ void decode_softmax(const float* scores, uint32_t (&p)[S::kN][4][2], DecodeState<S>& tile) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int n = 0; n < S::kN; ++n) {
    float4 s[4];
    float top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      s[k] = *reinterpret_cast<const float4*>(scores + (8 * n + lane / 4) * S::kPitch + 16 * k + lane % 4 * 4);
      top = fmaxf(top, fmaxf(fmaxf(s[k].x, s[k].y), fmaxf(s[k].z, s[k].w)));
    }
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      s[k].x = power2(__fsub_rn(s[k].x, base)), s[k].y = power2(__fsub_rn(s[k].y, base));
      s[k].z = power2(__fsub_rn(s[k].z, base)), s[k].w = power2(__fsub_rn(s[k].w, base));
      sum = __fadd_rn(sum, __fadd_rn(__fadd_rn(s[k].x, s[k].y), __fadd_rn(s[k].z, s[k].w)));
      p[n][k][0] = pack2(s[k].x, s[k].y), p[n][k][1] = pack2(s[k].z, s[k].w);
    }
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      tile.m[2 * n + i] = __shfl_sync(0xffffffffu, top, lane % 4 * 8 + 4 * i);
      tile.l[2 * n + i] = __shfl_sync(0xffffffffu, sum, lane % 4 * 8 + 4 * i);
    }
  }
}

// Pairs of values of keys from `first` on; those that lie behind `keys` become zero.
__device__ __forceinline__ uint32_t known_pair(uint32_t pair, int first, int keys) {
  return first + 1 < keys ? pair : first < keys ? pair & 0xffffu : 0;
}

// Sums of this warp's columns over a tile of which `keys` exist: behind them memory may hold anything.
template <class S>
__device__ __forceinline__ void decode_values(const char* values, const uint32_t (&p)[S::kN][4][2], int keys,
                                              DecodeState<S>& tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  constexpr int kTogether = S::kRows < 2 ? S::kRows : 2;
#pragma unroll
  for (int r0 = 0; r0 < S::kRows; r0 += kTogether) {
    uint32_t b[kTogether][4][4];
#pragma unroll
    for (int i = 0; i < 4 * kTogether; ++i) {
      const int chunk = (warp * S::kRows + r0 + i / 4) * 2 + lane / 8 % 2, key = i % 4 * 16 + lane % 8 + lane / 16 * 8;
      load_matrix4_transposed(b[i / 4][i % 4],
                              values + chunk / 8 * S::kHalfBytes + key * 128 + ((chunk % 8) ^ (key & 7)) * 16);
    }
    if (keys < kDecodeTile) {
#pragma unroll
      for (int i = 0; i < 16 * kTogether; ++i) {
        uint32_t& pair = b[i / 16][i / 4 % 4][i % 4];
        pair = known_pair(pair, i / 4 % 4 * 16 + lane % 4 * 2 + i % 4 / 2 * 8, keys);
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether * S::kN * 4; ++i) tile.v[r0 + i / 4 / S::kN][i / 4 % S::kN][i % 4] = 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * kTogether; ++i) {
#pragma unroll
      for (int n = 0; n < S::kN; ++n)
        mma(tile.v[r0 + i % kTogether][n], b[i % kTogether][i / kTogether], p[n][i / kTogether]);
    }
  }
}

// Queries of a piece, and its newest key where this kernel makes it. Room of the last tile but one takes them, and the
// tile to come has the other: a warp may be behind by the products of one tile.
template <class S>
__device__ __forceinline__ void decode_start(const AttentionArgs& a, const DecodePiece& p, const DecodeShared<S>& sh,
                                             int& turn, uint32_t (&q)[S::kN][S::kSteps][2], Newest<S>& newest) {
  if constexpr (S::kD <= 128) {
    if (a.prepare.qkv != nullptr) {
      prepare_piece<S>(a, p, sh.scores + turn * S::kScores, q, newest);
      turn ^= 1;
      return;
    }
  }
  decode_queries<S>(a, p.u, q);
}

// The tiles of a piece, by the warps that compute; fold(t, tile) is handed what was found in each. begun() comes when
// the piece's queries are there. Of codes: attention_decode_codes.cuh.
template <class S, class Fold, class Begun>
requires(!S::kCodes) __device__ __forceinline__
    void decode_tiles(const AttentionArgs& a, const DecodePiece& p, const DecodeShared<S>& sh, DecodePlace<S>& at,
                      int& turn, const Fold& fold, const Begun& begun) {
  const int lane = threadIdx.x & 31;
  uint32_t q[S::kN][S::kSteps][2];
  Newest<S> newest;
  decode_start<S>(a, p, sh, turn, q, newest);
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
    barrier_wait(&sh.full[at.stage], at.phase);
    if (newest.mine(t, false)) newest.put(a.prepare.interleaved, sh.ring + at.stage * S::kStageBytes);
    decode_scores<S>(sh.ring + at.stage * S::kStageBytes, q, a.scale_log2, t * kDecodeTile, visible, scores);
    done();
    if (newest.mine(t, true)) {
      barrier_wait(&sh.full[at.stage], at.phase);
      newest.put(a.prepare.interleaved, sh.ring + at.stage * S::kStageBytes);
    }
    computing_sync();
    uint32_t w[S::kN][4][2];
    DecodeState<S> tile;
    decode_softmax<S>(scores, w, tile);
    barrier_wait(&sh.full[at.stage], at.phase);
    decode_values<S>(sh.ring + at.stage * S::kStageBytes, w, end - t * kDecodeTile, tile);
    done();
    fold(t, tile);
  }
}
template <class S, class Fold>
__device__ __forceinline__ void decode_tiles(const AttentionArgs& a, const DecodePiece& p, const DecodeShared<S>& sh,
                                             DecodePlace<S>& at, int& turn, const Fold& fold) {
  decode_tiles<S>(a, p, sh, at, turn, fold, [] {});
}

}  // namespace
}  // namespace tern::cuda
