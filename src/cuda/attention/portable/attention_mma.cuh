// Attention on tensor cores for heads of up to kDK / kDV values; smaller ones are padded with zeros in shared memory.
// Scores go through shared memory, so that every query has one chain of operations whatever the tile of queries is.
#pragma once

#include "cuda/attention/codes/kv_codes.cuh"
#include "cuda/ptx/launch.cuh"
#include "ops/op_check.h"

namespace tern::cuda {

template <int kDK_, int kDV_, int kM_, int kTile_, int kWarps_, bool kLatent_, KvCode kCode_ = KvCode::kNone>
struct AttentionShape {
  static constexpr KvCode kCode = kCode_;
  static constexpr bool kCodes = kCode != KvCode::kNone;
  static constexpr int kDK = kDK_, kDV = kDV_, kM = kM_, kTile = kTile_, kWarps = kWarps_;
  static constexpr bool kLatent = kLatent_;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kKRow = kDK + 8, kVRow = kDV + 8, kSRow = kTile + 4, kPRow = kTile + 8;  // padded against banks
  static constexpr int kRowTiles = kM / 16, kColTiles = kDV / 8 / kWarps;
  static constexpr int kPerSegment = kSegment / kTile;
  static constexpr size_t kBytes =
      sizeof(bf) * (kM * kKRow + kTile * kKRow + (kLatent ? 0 : kTile * kVRow) + kM * kPRow) +
      sizeof(float) * (kM * kSRow + 6 * kM + (kCodes ? 3 * kTile : 0));
};

template <class S>
struct AttentionShared {
  bf *q, *k, *v, *p;
  float *s, *m, *l, *alpha, *total_m, *total_l;
  int* visible;
  float *k_scale, *v_scale;  // of codes: of two tiles in turn, of one
  __device__ explicit AttentionShared(char* memory) {
    q = reinterpret_cast<bf*>(memory);
    k = q + S::kM * S::kKRow;
    v = S::kLatent ? k : k + S::kTile * S::kKRow;
    p = (S::kLatent ? k + S::kTile * S::kKRow : v + S::kTile * S::kVRow);
    s = reinterpret_cast<float*>(p + S::kM * S::kPRow);
    m = s + S::kM * S::kSRow;
    l = m + S::kM, alpha = l + S::kM, total_m = alpha + S::kM, total_l = total_m + S::kM;
    visible = reinterpret_cast<int*>(total_l + S::kM);
    k_scale = total_l + 2 * S::kM, v_scale = k_scale + 2 * S::kTile;
  }
};

template <class S>
using AttentionSums = float[S::kRowTiles][S::kColTiles][4];

// Rows [j0, j0 + kTile) of keys or values as bf16; rows from `end` on and columns from `dim` to the next 16 are zero.
template <class S, bool kValues>
__device__ void load_tile(const AttentionArgs& a, const AttentionUnit& u, int j0, int end, bf* to) {
  const int dim = kValues ? a.dv : a.dk, chunks = (dim + 15) / 16 * 2;
  constexpr int kRow = kValues ? S::kVRow : S::kKRow;
  for (int i = threadIdx.x; i < S::kTile * chunks; i += S::kThreads) {
    const int r = i / chunks, c = i % chunks * 8, j = j0 + r;
    bf* at = to + r * kRow + c;
    const bool in = j < end && c < dim;
    if (!a.kv_f32) {
      const char* row = in ? (kValues ? value_row(a, u, j, 2) : key_row(a, u, j, 2)) + 2 * c : nullptr;
      copy_async(at, in ? row : static_cast<const char*>(static_cast<const void*>(a.row_start)), in ? 16 : 0);
    } else {
      Vec8 x{};
      if (in) x = load8(reinterpret_cast<const float*>(kValues ? value_row(a, u, j, 4) : key_row(a, u, j, 4)) + c);
      store8(at, x);
    }
  }
}

// The same of codes, and their scales; those of keys that are not there are zero.
template <class S, bool kValues>
__device__ void load_codes(const AttentionArgs& a, const AttentionUnit& u, int j0, int end, bf* to, float* scales) {
  const int dim = kValues ? a.dv : a.dk;
  constexpr int kRow = kValues ? S::kVRow : S::kKRow;
  for (int r = threadIdx.x; r < S::kTile; r += S::kThreads) {
    const int j = j0 + r;
    float scale = 0.0f;
    if (j < end) {
      scale = code_scales(a, code_block(a, u.row, j), kValues ? a.kv_heads + u.kv_head : u.kv_head)[j % a.block_size];
    }
    scales[r] = scale;
  }
  // Sixteen codes at a time: of a key, or four columns of four values.
  const int chunks = kValues ? dim / 4 : dim / 16, rows = kValues ? S::kTile / 4 : S::kTile;
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * chunks; i += S::kThreads) {
    const int r = i / chunks, c = i % chunks, j = j0 + (kValues ? 4 * r : r);
    uint4 codes = {};
    if (j < end) {
      const char* block = code_block(a, u.row, j);
      const char* head = kValues ? code_values(a, block, u.kv_head) : code_keys(a, block, u.kv_head);
      codes = *reinterpret_cast<const uint4*>(head + int64_t{j % a.block_size} * dim + 16 * c);
    }
    const uint32_t w[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t even[4], odd[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) even[k] = even_codes<S::kCode>(w[k]), odd[k] = odd_codes<S::kCode>(w[k]);
    if constexpr (kValues) {
      bf* at = to + 4 * r * kRow + 4 * c;
      *reinterpret_cast<uint2*>(at) = make_uint2(low_halves(even[0], even[1]), low_halves(even[2], even[3]));
      *reinterpret_cast<uint2*>(at + kRow) = make_uint2(low_halves(odd[0], odd[1]), low_halves(odd[2], odd[3]));
      *reinterpret_cast<uint2*>(at + 2 * kRow) =
          make_uint2(high_halves(even[0], even[1]), high_halves(even[2], even[3]));
      *reinterpret_cast<uint2*>(at + 3 * kRow) = make_uint2(high_halves(odd[0], odd[1]), high_halves(odd[2], odd[3]));
    } else {
      auto* at = reinterpret_cast<uint4*>(to + r * kRow + 16 * c);
      at[0] = make_uint4(low_halves(even[0], odd[0]), high_halves(even[0], odd[0]), low_halves(even[1], odd[1]),
                         high_halves(even[1], odd[1]));
      at[1] = make_uint4(low_halves(even[2], odd[2]), high_halves(even[2], odd[2]), low_halves(even[3], odd[3]),
                         high_halves(even[3], odd[3]));
    }
  }
}

// Keys or values of tile t, as the shape has them.
template <class S, bool kValues>
__device__ __forceinline__ void load_any(const AttentionArgs& a, const AttentionUnit& u, int t, int end,
                                         const AttentionShared<S>& sh) {
  if constexpr (S::kCodes) {
    load_codes<S, kValues>(a, u, t * S::kTile, end, kValues ? sh.v : sh.k,
                           kValues ? sh.v_scale : sh.k_scale + t % 2 * S::kTile);
  } else {
    load_tile<S, kValues>(a, u, t * S::kTile, end, kValues ? sh.v : sh.k);
  }
}

template <class S>
__device__ void load_queries(const AttentionArgs& a, const AttentionUnit& u, const AttentionShared<S>& sh) {
  const int chunks = (a.dk + 15) / 16 * 2;
  for (int i = threadIdx.x; i < S::kM * chunks; i += S::kThreads) {
    const int r = i / chunks, c = i % chunks * 8;
    Vec8 x{};
    if (r < u.queries() && c < a.dk) {
      const int64_t at = (u.token0 + r / u.heads) * a.q_token + (u.head0 + r % u.heads) * a.q_head + c;
      x = a.q_f32 ? load8(static_cast<const float*>(a.q) + at) : load8(static_cast<const bf*>(a.q) + at);
      if constexpr (S::kCodes) scale_query(a, u, c, x);
    }
    store8(sh.q + r * S::kKRow + c, x);
  }
  for (int r = threadIdx.x; r < S::kM; r += S::kThreads) sh.visible[r] = u.visible(r);
}

// s = q k^T, tiles of 16 x 8 dealt to the warps.
template <class S>
__device__ void scores(const AttentionArgs& a, const AttentionShared<S>& sh) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, depth = (a.dk + 15) / 16 * 16;
  for (int at = warp; at < S::kRowTiles * (S::kTile / 8); at += S::kWarps) {
    const int row = at / (S::kTile / 8) * 16, col = at % (S::kTile / 8) * 8;
    const bf* q = sh.q + (row + lane % 16) * S::kKRow + lane / 16 * 8;
    const bf* k = sh.k + (col + lane % 8) * S::kKRow + lane / 8 % 2 * 8;
    float d[4] = {};
#pragma unroll 4
    for (int i = 0; i < depth; i += 16) {
      uint32_t x[4], y[2];
      load_matrix4(x, q + i);
      load_matrix2(y, k + i);
      mma(d, x, y);
    }
    float* to = sh.s + (row + lane / 4) * S::kSRow + col + lane % 4 * 2;
    to[0] = d[0], to[1] = d[1];
    to[8 * S::kSRow] = d[2], to[8 * S::kSRow + 1] = d[3];
  }
}

// Online softmax of one tile: eight lanes per query, in the same order for every shape of tile.
template <class S>
__device__ void softmax(const AttentionArgs& a, int j0, const AttentionShared<S>& sh) {
  constexpr int kEach = S::kTile / 8;
  const int lane = threadIdx.x % 8;
  for (int r = threadIdx.x / 8; r < S::kM; r += S::kThreads / 8) {
    const int visible = sh.visible[r] - j0;
    float v[kEach], top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      v[i] = sh.s[r * S::kSRow + lane + 8 * i] * a.scale_log2;
      if constexpr (S::kCodes) v[i] *= sh.k_scale[j0 / S::kTile % 2 * S::kTile + lane + 8 * i];
      if (lane + 8 * i >= visible) v[i] = -INFINITY;
      top = fmaxf(top, v[i]);
    }
#pragma unroll
    for (int d = 4; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    const float old = sh.m[r], now = fmaxf(old, top), base = now == -INFINITY ? 0.0f : now;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float p = exp2f(v[i] - base);
      sum += p;
      const float weight = S::kCodes ? p * sh.v_scale[lane + 8 * i] : p;
      sh.p[r * S::kPRow + lane + 8 * i] = from_float<bf>(weight);
    }
#pragma unroll
    for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    __syncwarp();
    if (lane == 0) {
      const float alpha = exp2f(old - base);
      sh.m[r] = now, sh.alpha[r] = alpha;
      sh.l[r] = __fmaf_rn(sh.l[r], alpha, sum);
    }
  }
}

// acc = acc * alpha + p v; a warp has every kWarps-th tile of 8 columns.
template <class S>
__device__ void accumulate(const AttentionArgs& a, const AttentionShared<S>& sh, AttentionSums<S>& acc) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  constexpr int kVRow = S::kLatent ? S::kKRow : S::kVRow;
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
    const float low = sh.alpha[i * 16 + lane / 4], high = sh.alpha[i * 16 + lane / 4 + 8];
#pragma unroll
    for (int j = 0; j < S::kColTiles; ++j) {
      acc[i][j][0] *= low, acc[i][j][1] *= low;
      acc[i][j][2] *= high, acc[i][j][3] *= high;
    }
  }
#pragma unroll
  for (int k = 0; k < S::kTile; k += 16) {
    uint32_t p[S::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      load_matrix4(p[i], sh.p + (i * 16 + lane % 16) * S::kPRow + k + lane / 16 * 8);
    }
#pragma unroll
    for (int j = 0; j < S::kColTiles; ++j) {
      const int col = (j * S::kWarps + warp) * 8;
      if (col >= a.dv) break;
      uint32_t v[2];
      load_matrix2_transposed(v, sh.v + (k + lane % 16) * kVRow + col);
#pragma unroll
      for (int i = 0; i < S::kRowTiles; ++i) mma(acc[i][j], p[i], v);
    }
  }
}

// f(row, column, value) for every value of the sums that this thread has.
template <class S, class F>
__device__ void for_sums(const AttentionArgs& a, AttentionSums<S>& acc, F&& f) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < S::kColTiles; ++j) {
      const int col = (j * S::kWarps + warp) * 8 + lane % 4 * 2;
      if (col >= a.dv) continue;
#pragma unroll
      for (int v = 0; v < 4; ++v) f(i * 16 + lane / 4 + v / 2 * 8, col + v % 2, acc[i][j][v]);
    }
  }
}

template <class S>
__device__ void join_segment(const AttentionArgs& a, bool first, const AttentionShared<S>& sh, AttentionSums<S>& acc,
                             AttentionSums<S>& total) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = i * 16 + lane / 4 + half * 8;
      const JoinFactors f = first ? JoinFactors{0.0f, 0.0f, 1.0f} : join_factors(sh.total_m[r], sh.m[r]);
#pragma unroll
      for (int j = 0; j < S::kColTiles; ++j) {
#pragma unroll
        for (int v = 2 * half; v < 2 * half + 2; ++v) {
          total[i][j][v] = first ? acc[i][j][v] : join(total[i][j][v], acc[i][j][v], f);
          acc[i][j][v] = 0.0f;
        }
      }
    }
  }
  __syncthreads();
  for (int r = threadIdx.x; r < S::kM; r += S::kThreads) {
    const JoinFactors f = join_factors(sh.total_m[r], sh.m[r]);
    sh.total_l[r] = first ? sh.l[r] : join(sh.total_l[r], sh.l[r], f);
    sh.total_m[r] = first ? sh.m[r] : f.m;
    sh.m[r] = -INFINITY, sh.l[r] = 0.0f;
  }
}

// Tiles [t0, t1) of the unit's context; segments are joined into `total` as they end.
template <class S>
__device__ void streamk_tiles(const AttentionArgs& a, const AttentionUnit& u, int t0, int t1,
                              const AttentionShared<S>& sh, AttentionSums<S>& acc, AttentionSums<S>& total) {
  const int end = u.most();
  if (!S::kLatent && t0 < t1) load_any<S, false>(a, u, t0, end, sh);
  copy_commit();
  for (int t = t0; t < t1; ++t) {
    const int j0 = t * S::kTile;
    if constexpr (S::kLatent) {
      load_tile<S, false>(a, u, j0, end, sh.k);
      copy_commit();
      copy_wait<0>();
    } else {
      load_any<S, true>(a, u, t, end, sh);
      copy_commit();
      copy_wait<1>();
    }
    __syncthreads();
    scores(a, sh);
    __syncthreads();
    if constexpr (!S::kLatent) {
      if (t + 1 < t1) load_any<S, false>(a, u, t + 1, end, sh);
      copy_commit();
    }
    softmax(a, j0, sh);
    if constexpr (!S::kLatent) copy_wait<1>();
    __syncthreads();
    accumulate(a, sh, acc);
    __syncthreads();
    if ((t + 1) % S::kPerSegment == 0 || t + 1 == t1) {
      join_segment(a, t / S::kPerSegment * S::kPerSegment <= t0, sh, acc, total);
      __syncthreads();
    }
  }
  copy_wait<0>();
}

template <class S>
__device__ void run_unit(const AttentionArgs& a, const AttentionUnit& u, bool split, int item,
                         const AttentionShared<S>& sh) {
  const int tiles = (u.most() + S::kTile - 1) / S::kTile;
  const int t0 = split ? u.segment * S::kPerSegment : 0;
  const int t1 = split ? min(tiles, t0 + S::kPerSegment) : tiles;
  load_queries(a, u, sh);
  for (int r = threadIdx.x; r < S::kM; r += S::kThreads) {
    sh.m[r] = sh.total_m[r] = -INFINITY;
    sh.l[r] = sh.total_l[r] = 0.0f;
  }
  __syncthreads();
  AttentionSums<S> acc = {}, total = {};
  streamk_tiles(a, u, t0, t1, sh, acc, total);
  __syncthreads();
  if (!split) {
    for_sums<S>(a, total, [&](int r, int col, float v) {
      if (r < u.queries()) store_out(a, u, r, col, v, sh.total_l[r]);
    });
    return;
  }
  float* slot = a.slots + int64_t{item} * S::kM * (a.dv + 2);
  for (int r = threadIdx.x; r < S::kM; r += S::kThreads) slot[r] = sh.total_m[r], slot[S::kM + r] = sh.total_l[r];
  float* sums = slot + 2 * S::kM;
  for_sums<S>(a, total, [&](int r, int col, float v) { sums[r * a.dv + col] = v; });
}

template <class S>
__global__ void __launch_bounds__(S::kThreads) attention_kernel(const AttentionArgs a) {
  extern __shared__ __align__(16) char memory[];
  let_next_start();
  wait_for_previous();
  const AttentionShared<S> sh(memory);
  const bool split = a.plan[0] != 0;
  const int items = a.plan[1];
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    run_unit(a, unit_of(a, item, split), split, item, sh);
    __syncthreads();
  }
}

// Joins the segments of split units in ascending order. A warp per query.
template <class S>
__global__ void join_kernel(const AttentionArgs a) {
  let_next_start();
  wait_for_previous();
  if (a.plan[0] == 0) return;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int item = blockIdx.x; item < a.plan[1]; item += gridDim.x) {
    const AttentionUnit u = unit_of(a, item, true);
    if (u.segment != 0) continue;  // the first item of a unit stands for all
    const int64_t each = int64_t{S::kM} * (a.dv + 2);
    for (int r = warp; r < u.queries(); r += warps) {
      const int segments = max(1, (u.most() + kSegment - 1) / kSegment);
      const float* slot = a.slots + item * each;
      for (int col = lane; col < a.dv; col += 32) {
        float m = slot[r], l = slot[S::kM + r], v = slot[2 * S::kM + r * a.dv + col];
        for (int g = 1; g < segments; ++g) {
          const float* next = slot + g * each;
          const JoinFactors f = join_factors(m, next[r]);
          m = f.m, l = join(l, next[S::kM + r], f);
          v = join(v, next[2 * S::kM + r * a.dv + col], f);
        }
        store_out(a, u, r, col, v, l);
      }
    }
  }
}

// Plan, attention, join. The grid is fixed by the GPU alone, so that a captured graph serves every context.
template <class S>
Status launch_attention(AttentionArgs a, const char* name, device::Stream stream) {
  StreamState& st = state(stream);
  TERN_OP_CHECK("attention", S::kBytes <= static_cast<size_t>(st.smem_limit), "this GPU has too little shared memory");
  a = mma_units(a, S::kM, stream);
  if (!a.planned) {
    if (Status made = launch_plan(a, stream); !made.ok()) return made;
  }
  const auto blocks = static_cast<unsigned>(2 * st.multiprocessors);
  const Status run = launch(stream, name, {blocks, S::kThreads, S::kBytes}, attention_kernel<S>, a);
  if (a.slot_capacity == 0 || !run.ok()) return run;
  return launch(stream, name, {blocks, 128}, join_kernel<S>, a);
}

}  // namespace tern::cuda
