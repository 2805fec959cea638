// Attention of up to 16 queries that share a KV head (those of a decoding sequence, or in deterministic mode a piece of
// a prompt), made to read the cache as fast as it can. A block of four warps; keys come in rounds of 256, each warp has
// 64 of them, whose products, softmax and values it does alone behind a ring of copies of its own. What the warps found
// is joined in ascending order after each round; rounds are joined to segments of kSegment keys, segments to the
// result, always at the same absolute positions. How many rounds an item of work has (the plan) changes no bit.
#pragma once

#include "cuda/attention/attention_unit.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {

template <int kD_, int kRing_>
struct PortableDecodeShape {
  static constexpr int kD = kD_, kRing = kRing_, kWarps = 4, kThreads = 32 * kWarps, kM = 16;
  static constexpr int kTile = 64, kPiece = 16;  // keys of a warp's turn and of one copy
  static constexpr int kPieceBytes = kPiece * kD * 2, kRow = kD * 2;
  static constexpr int kGroups = kD / 64, kExchange = 72;  // columns exchanged at once, padded against banks
  static constexpr int kOwn = kD / 8;                      // values of a query that a thread joins
  static constexpr size_t kBytes =
      kWarps * kRing * kPieceBytes + kM * kRow + sizeof(float) * kWarps * (kM * kExchange + 2 * kM) + 16;
};

struct PortableDecodeState {
  float m = -INFINITY, l = 0.0f;
};

// One warp's ring of copies: pieces of 16 keys, then of their values.
template <class S>
struct PortableDecodeRing {
  const AttentionArgs& a;
  const AttentionUnit& u;
  char* memory;
  int first, tiles, end;  // first tile (in steps of 4), how many, keys that exist
  int entry = 0;          // lane i: block of tile first + 4 i (blocks that hold whole tiles)

  __device__ __forceinline__ int key(int tile) const { return (first + 4 * tile) * S::kTile; }
  __device__ __forceinline__ char* slot(int piece) const { return memory + piece % S::kRing * S::kPieceBytes; }

  __device__ void load_entries(int tile) {
    if (a.block_size % S::kTile != 0) return;
    const int t = tile + static_cast<int>(threadIdx.x & 31);
    if (t < tiles) entry = a.table[u.row * a.table_stride + key(t) / a.block_size];
  }
  __device__ void issue(int piece) {
    const int tile = piece / 8, lane = threadIdx.x & 31;
    if (tile < tiles) {
      if (piece % 256 == 0 && piece > 0) load_entries(tile);
      const bool values = piece % 8 >= 4;
      const int j = key(tile) + piece % 4 * S::kPiece, dim = values ? a.dv : a.dk;
      const int known = __shfl_sync(0xffffffffu, entry, tile % 32);
      const int block = a.block_size % S::kTile == 0 ? known : a.table[u.row * a.table_stride + j / a.block_size];
      const int64_t head = int64_t{u.kv_head} * a.block_size + j % a.block_size;
      const int64_t at = values ? int64_t{a.kv_heads} * a.block_size * a.dk + head * a.dv : head * a.dk;
      const char* from = a.cache + block * a.block_stride + 2 * at;
      char* to = slot(piece);
#pragma unroll
      for (int i = 0; i < S::kD / 16; ++i) {
        const int r = (i * 32 + lane) / (S::kD / 8), c = (i * 32 + lane) % (S::kD / 8);
        const bool in = j + r < end && 8 * c < dim;
        copy_async(to + r * S::kRow + ((c ^ (r & 7)) * 16), in ? from + r * dim * 2 + c * 16 : from, in ? 16 : 0);
      }
    }
    copy_commit();
  }
  // The piece is there for the whole warp, and the ring is filled up behind it.
  __device__ __forceinline__ const char* take(int piece) {
    copy_wait<S::kRing - 2>();
    __syncwarp();
    issue(piece + S::kRing - 1);
    return slot(piece);
  }
};

// d[4]: one tile of 8 keys; a warp's scores of 64 keys.
using PortableDecodeScores = float[8][4];

template <class S>
__device__ __forceinline__ void portable_scores(const char* piece, const uint32_t (&q)[S::kD / 16][4], float (&low)[4],
                                                float (&high)[4]) {
  const int lane = threadIdx.x & 31, row = lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
#pragma unroll
  for (int k = 0; k < S::kD / 16; ++k) {
    uint32_t b[4];
    load_matrix4(b, piece + row * S::kRow + (((2 * k + half) ^ (row & 7)) * 16));
    mma(low, q[k], {b[0], b[1]});
    mma(high, q[k], {b[2], b[3]});
  }
}

// Scores become weights; m and l are those of these 64 keys. j0: the first key. visible: keys that the two queries see.
__device__ __forceinline__ void portable_softmax(PortableDecodeScores& s, float scale, int j0, const int (&visible)[2],
                                                 PortableDecodeState (&st)[2]) {
  const int col = j0 + static_cast<int>(threadIdx.x & 3) * 2;
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      s[i][v] *= scale;
      if (col + 8 * i + v % 2 >= visible[v / 2]) s[i][v] = -INFINITY;
      top[v / 2] = fmaxf(top[v / 2], s[i][v]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
    const float base = top[h] == -INFINITY ? 0.0f : top[h];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      s[i][2 * h] = exp2f(s[i][2 * h] - base), s[i][2 * h + 1] = exp2f(s[i][2 * h + 1] - base);
      sum += s[i][2 * h], sum += s[i][2 * h + 1];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    st[h] = {top[h], sum};
  }
}

template <class S>
__device__ __forceinline__ void portable_values(const char* piece, const float (&first)[4], const float (&second)[4],
                                                float (&acc)[S::kD / 8][4]) {
  const int lane = threadIdx.x & 31, row = lane % 16, side = lane / 16;
  const uint32_t p[4] = {pack2(first[0], first[1]), pack2(first[2], first[3]), pack2(second[0], second[1]),
                         pack2(second[2], second[3])};
#pragma unroll
  for (int c = 0; c < S::kD / 16; ++c) {
    uint32_t b[4];
    load_matrix4_transposed(b, piece + row * S::kRow + (((2 * c + side) ^ (row & 7)) * 16));
    mma(acc[2 * c], p, {b[0], b[1]});
    mma(acc[2 * c + 1], p, {b[2], b[3]});
  }
}

// What a thread joins: query threadIdx.x / 8, of every 64 columns two runs of four.
template <class S>
struct PortableDecodeTotal {
  PortableDecodeState state;
  float v[S::kOwn] = {};
  __device__ __forceinline__ void add(const PortableDecodeState& other, const float (&y)[S::kOwn]) {
    if (other.m == -INFINITY) return;
    const JoinFactors f = join_factors(state.m, other.m);
    state.m = f.m, state.l = join(state.l, other.l, f);
#pragma unroll
    for (int i = 0; i < S::kOwn; ++i) v[i] = join(v[i], y[i], f);
  }
  __device__ static int column(int i) {
    return i / 8 * 64 + static_cast<int>(threadIdx.x % 8) * 4 + i / 4 % 2 * 32 + i % 4;
  }
};

template <class S>
struct PortableDecodeShared {
  char *ring, *q;
  float *exchange, *m, *l;
  int* last;
  __device__ explicit PortableDecodeShared(char* memory) {
    ring = memory, q = ring + S::kWarps * S::kRing * S::kPieceBytes;
    exchange = reinterpret_cast<float*>(q + S::kM * S::kRow);
    m = exchange + S::kWarps * S::kM * S::kExchange, l = m + S::kWarps * S::kM;
    last = reinterpret_cast<int*>(l + S::kWarps * S::kM);
  }
};

// The four warps' results of one round, joined in ascending order into `total`. `here`: this warp had keys.
template <class S>
__device__ void portable_round(const PortableDecodeShared<S>& sh, bool here, const PortableDecodeState (&st)[2],
                               float (&acc)[S::kD / 8][4], PortableDecodeTotal<S>& total) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, row = lane / 4, mine = threadIdx.x / 8;
  if (lane % 4 == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sh.m[warp * S::kM + row + 8 * h] = here ? st[h].m : -INFINITY;
      sh.l[warp * S::kM + row + 8 * h] = here ? st[h].l : 0.0f;
    }
  }
  PortableDecodeTotal<S> round;
  JoinFactors f[S::kWarps];
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
    if (here) {
      float* to = sh.exchange + (warp * S::kM + row) * S::kExchange + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float(&d)[4] = acc[8 * g + i];
        *reinterpret_cast<float2*>(to + 8 * i) = make_float2(d[0], d[1]);
        *reinterpret_cast<float2*>(to + 8 * S::kExchange + 8 * i) = make_float2(d[2], d[3]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < S::kWarps; ++w) {
      const float m = sh.m[w * S::kM + mine];
      if (m == -INFINITY) continue;
      if (g == 0) {
        f[w] = join_factors(round.state.m, m);
        round.state.m = f[w].m, round.state.l = join(round.state.l, sh.l[w * S::kM + mine], f[w]);
      }
      const float* from = sh.exchange + (w * S::kM + mine) * S::kExchange + threadIdx.x % 8 * 4;
      const float4 y[2] = {*reinterpret_cast<const float4*>(from), *reinterpret_cast<const float4*>(from + 32)};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float* v = round.v + 8 * g + 4 * i;
        v[0] = join(v[0], y[i].x, f[w]), v[1] = join(v[1], y[i].y, f[w]);
        v[2] = join(v[2], y[i].z, f[w]), v[3] = join(v[3], y[i].w, f[w]);
      }
    }
    __syncthreads();
  }
  total.add(round.state, round.v);
}

}  // namespace tern::cuda
