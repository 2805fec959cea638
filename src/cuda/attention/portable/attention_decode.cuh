// Attention of up to 16 queries that share a KV head (those of a decoding sequence, or in deterministic mode a piece of
// a prompt), made to read the cache as fast as it can. A block of four warps; keys come in rounds of 256, each warp has
// 64 of them, whose products, softmax and values it does alone behind a ring of copies of its own. What the warps found
// is joined in ascending order after each round; rounds are joined to segments of kSegment keys, segments to the
// result, always at the same absolute positions. How many rounds an item of work has (the plan) changes no bit.
#pragma once

#include "cuda/attention/codes/kv_codes.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {

template <int kD_, int kRing_, KvCode kCode_ = KvCode::kNone>
struct PortableDecodeShape {
  static constexpr KvCode kCode = kCode_;
  static constexpr bool kCodes = kCode != KvCode::kNone;
  static constexpr int kD = kD_, kRing = kRing_, kWarps = 4, kThreads = 32 * kWarps, kM = 16;
  static constexpr int kTile = 64, kPiece = 16;  // keys of a warp's turn and of one copy
  static constexpr int kRow = kD * 2;
  // Codes have their keys' scales behind them.
  static constexpr int kCodeBytes = kPiece * kD, kPieceBytes = kCodes ? kCodeBytes + kPiece * 4 : kPiece * kRow;
  static constexpr int kGroups = kD / 64, kExchange = 72;  // columns exchanged at once, padded against banks
  static constexpr int kOwn = kD / 8;                      // values of a query that a thread joins
  static constexpr size_t kBytes =
      kWarps * kRing * kPieceBytes + kM * kRow + sizeof(float) * kWarps * (kM * kExchange + 2 * kM) + 16;
};

struct PortableDecodeState {
  float m = -INFINITY, l = 0.0f;
};

// Where 16 bytes, `chunk`, of key r of a piece lie. Lanes read eight keys of one parity, two of them with four chunks
// each at a time.
template <class S>
__device__ __forceinline__ int portable_code_key(int r, int chunk) {
  if constexpr (S::kD == 64) return r / 2 * 128 + ((r & 1) ^ (r >> 1 & 1)) * 64 + chunk * 16;
  return r * S::kD + (chunk ^ (r >> 1 & 1) * 4) * 16;
}

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
      // The last tile may reach behind the context, and its row of the table ends with the context's last block.
      const int block =
          a.block_size % S::kTile == 0 ? known : a.table[u.row * a.table_stride + min(j, end - 1) / a.block_size];
      if constexpr (S::kCodes) {
        issue_codes(a.cache + block * a.block_stride, values, j, slot(piece));
        copy_commit();
        return;
      }
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
  // A key's codes stand in 16 bytes at a time, and so do those of four columns of four values; both in the order in
  // which portable_code_scores() and portable_code_values() read them without bank conflicts.
  __device__ void issue_codes(const char* block, bool values, int j, char* to) {
    constexpr int kChunks = S::kD / 16;  // of a key
    const int lane = threadIdx.x & 31, dim = values ? a.dv : a.dk, at = j % a.block_size;
    const char* from = (values ? code_values(a, block, u.kv_head) : code_keys(a, block, u.kv_head)) + int64_t{at} * dim;
#pragma unroll
    for (int i = 0; i < S::kD / 32; ++i) {
      const int n = i * 32 + lane;
      if (values) {
        const int r = n / (S::kD / 4), c = n % (S::kD / 4);
        const bool in = j + 4 * r < end && 4 * c < dim;
        copy_async(to + r * 4 * S::kD + (c ^ 2 * r) * 16, in ? from + r * 4 * dim + c * 16 : from, in ? 16 : 0);
      } else {
        const int r = n / kChunks, c = n % kChunks;
        const bool in = j + r < end && 16 * c < dim;
        copy_async(to + portable_code_key<S>(r, c), in ? from + r * dim + c * 16 : from, in ? 16 : 0);
      }
    }
    if (lane < 4) {
      const float* scales = code_scales(a, block, values ? a.kv_heads + u.kv_head : u.kv_head) + at + 4 * lane;
      const bool in = j + 4 * lane < end;  // behind the context there may be no block
      copy_async(to + S::kCodeBytes + 16 * lane, in ? static_cast<const void*>(scales) : a.cache, in ? 16 : 0);
    }
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

// The same of codes. Of 64 columns, step s of a lane's four has those of 16 * (lane % 4) + 4 s and the next three,
// evens before odds (portable_code_query()); `low` are the scores of the piece's even keys, `high` of its odd ones.
template <class S>
__device__ __forceinline__ void portable_code_scores(const char* piece, const uint32_t (&q)[S::kD / 16][4],
                                                     float (&low)[4], float (&high)[4]) {
  const int lane = threadIdx.x & 31, key = lane / 4 * 2;
#pragma unroll
  for (int k = 0; k < S::kD / 64; ++k) {
    const uint4 x = *reinterpret_cast<const uint4*>(piece + portable_code_key<S>(key, 4 * k + lane % 4));
    const uint4 y = *reinterpret_cast<const uint4*>(piece + portable_code_key<S>(key + 1, 4 * k + lane % 4));
    const uint32_t even[4] = {x.x, x.y, x.z, x.w}, odd[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      mma(low, q[4 * k + s], {even_codes<S::kCode>(even[s]), odd_codes<S::kCode>(even[s])});
      mma(high, q[4 * k + s], {even_codes<S::kCode>(odd[s]), odd_codes<S::kCode>(odd[s])});
    }
  }
  // Of keys 4 (lane % 4) and the next three.
  const float4 scale = *reinterpret_cast<const float4*>(piece + S::kCodeBytes + lane % 4 * 16);
  low[0] *= scale.x, high[0] *= scale.y, low[1] *= scale.z, high[1] *= scale.w;
  low[2] *= scale.x, high[2] *= scale.y, low[3] *= scale.z, high[3] *= scale.w;
}

// A fragment of queries, swizzled rows of bf16, for that order of columns.
template <class S>
__device__ __forceinline__ void portable_code_query(uint32_t (&q)[4], const char* queries, int step) {
  const int lane = threadIdx.x & 31, d = step / 4 * 64 + lane % 4 * 16 + step % 4 * 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    const char* at = queries + row * S::kRow + ((d / 8 ^ (row & 7)) * 16) + d % 8 * 2;
    const uint2 four = *reinterpret_cast<const uint2*>(at);
    q[h] = low_halves(four.x, four.y), q[2 + h] = high_halves(four.x, four.y);
  }
}

// Scores become weights; m and l are those of these 64 keys. j0: the first key. visible: keys that the two queries see.
template <class S>
__device__ __forceinline__ void portable_softmax(PortableDecodeScores& s, float scale, int j0, const int (&visible)[2],
                                                 PortableDecodeState (&st)[2]) {
  const int quad = threadIdx.x & 3;
  const auto key = [&](int i, int v) {
    return S::kCodes ? j0 + i / 2 * 16 + quad * 4 + v % 2 * 2 + i % 2 : j0 + quad * 2 + 8 * i + v % 2;
  };
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      s[i][v] *= scale;
      if (key(i, v) >= visible[v / 2]) s[i][v] = -INFINITY;
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

// The same of codes, whose columns are those that PortableDecodeTotal hands on in portable_round(). j: the first key.
// end: keys that exist; what stands beyond them may be anything, but its weight is zero.
template <class S>
__device__ __forceinline__ void portable_code_values(const char* piece, const float (&first)[4],
                                                     const float (&second)[4], int j, int end,
                                                     float (&acc)[S::kD / 8][4]) {
  const int lane = threadIdx.x & 31, quad = lane % 4, left = end - j - 4 * quad;
  float4 scale = *reinterpret_cast<const float4*>(piece + S::kCodeBytes + quad * 16);
  if (left < 4) {
    scale = make_float4(left > 0 ? scale.x : 0.0f, left > 1 ? scale.y : 0.0f, left > 2 ? scale.z : 0.0f, 0.0f);
  }
  const uint32_t p[4] = {pack2(first[0] * scale.x, first[1] * scale.z), pack2(first[2] * scale.x, first[3] * scale.z),
                         pack2(second[0] * scale.y, second[1] * scale.w),
                         pack2(second[2] * scale.y, second[3] * scale.w)};
#pragma unroll
  for (int c = 0; c < S::kD / 32; ++c) {
    const int chunk = 8 * c + lane / 4;
    const uint4 x = *reinterpret_cast<const uint4*>(piece + quad * 4 * S::kD + (chunk ^ 2 * quad) * 16);
    const uint32_t w[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) mma(acc[4 * c + i], p, {even_codes<S::kCode>(w[i]), odd_codes<S::kCode>(w[i])});
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
    if (S::kCodes && here) {
      // Tiles 4 c to 4 c + 3 have columns 32 c + 4 n to 32 c + 4 n + 3, n being a tile's own.
      float* to = sh.exchange + (warp * S::kM + row) * S::kExchange + lane % 4 * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int c = i / 4, e = i / 2 % 2, h = i % 2;
        const auto& d = acc + (8 * g + 4 * c);
        *reinterpret_cast<float4*>(to + h * 8 * S::kExchange + 32 * c + 4 * e) =
            make_float4(d[0][2 * h + e], d[1][2 * h + e], d[2][2 * h + e], d[3][2 * h + e]);
      }
    } else if (here) {
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
