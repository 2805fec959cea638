// Which queries an item of attention work has, and where keys lie.
#pragma once

#include "cuda/attention/attention_args.h"
#include "cuda/ptx/mma.cuh"

namespace tern::cuda {

struct AttentionUnit {
  int row;  // sequence
  int kv_head, head0, heads;
  int token0, tokens;     // in q
  int row_token;          // the row's first, in q
  int position0;          // of token0; packed: unused
  int context;            // keys of the sequence
  int keys;               // that at least one query sees
  int segment, segments;  // split: the one to do; how many the sequence has
  int slot;               // long rows in parts: where this one is left
  bool causal;
  __device__ int queries() const { return tokens * heads; }
  // Keys that query i sees; 0 for places without a query.
  __device__ int visible(int i) const {
    if (i >= queries()) return 0;
    return causal ? min(context, position0 + i / heads + 1) : context;
  }
  __device__ int most() const { return causal ? min(context, position0 + tokens) : context; }
  __device__ int tiles(int size) const { return max(1, (keys + size - 1) / size); }
  // Long rows in parts: tiles [first_tile, end_tile) of `all` are this one's.
  __device__ int first_tile(int all) const { return all * segment / segments; }
  __device__ int end_tile(int all) const { return all * (segment + 1) / segments; }
};

__device__ inline int context_of(const AttentionArgs& a, int r) {
  return a.context_len != nullptr ? a.context_len[r] : a.row_start[r + 1] - a.row_start[r];
}

// The last row whose first item is <= item.
__device__ inline int row_of(const int* plan, int rows, int item) {
  int low = 0, high = rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (plan[2 + middle] <= item) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The same by a whole warp, which looks at 32 rows at a time; `first`: first items of the rows.
__device__ inline int row_by_warp(const int* first, int rows, int item) {
  const int lane = threadIdx.x & 31;
  int low = 0, count = rows;
  while (count > 1) {
    const int step = (count + 31) / 32;
    const unsigned fits = __ballot_sync(0xffffffffu, lane * step < count && first[low + lane * step] <= item);
    const int k = 31 - __clz(static_cast<int>(fits));
    low += k * step;
    count = min(step, count - k * step);
  }
  return low;
}

// The unit of `block` times unit_tokens tokens of a row and of a chunk of a KV head's group.
__device__ inline AttentionUnit place_unit(const AttentionArgs& a, int row, int kv_head, int chunk, int block) {
  AttentionUnit u;
  u.row = row;
  u.row_token = a.row_start[row];
  const int n = a.row_start[row + 1] - u.row_token;
  u.context = context_of(a, row);
  u.causal = a.context_len != nullptr;
  u.segment = 0, u.segments = max(1, (u.context + kSegment - 1) / kSegment);
  const int group = a.heads / a.kv_heads;
  u.kv_head = kv_head;
  u.head0 = kv_head * group + chunk * a.chunk_heads;
  u.heads = min(a.chunk_heads, group - chunk * a.chunk_heads);
  u.token0 = u.row_token + block * a.unit_tokens;
  u.tokens = min(a.unit_tokens, u.row_token + n - u.token0);
  u.position0 = u.context - n + block * a.unit_tokens;
  u.keys = u.most();
  return u;
}

__device__ inline AttentionUnit unit_of(const AttentionArgs& a, int item, bool split) {
  const int row = row_of(a.plan, a.rows, item), segments = max(1, (context_of(a, row) + kSegment - 1) / kSegment);
  int index = item - a.plan[2 + row];
  const int segment = split ? index % segments : 0;
  if (split) index /= segments;
  const int unit = index / a.chunks;
  AttentionUnit u = place_unit(a, row, unit % a.kv_heads, index % a.chunks, unit / a.kv_heads);
  u.segment = segment;
  return u;
}

// Address of key (or value) j of the unit's sequence, in elements of `bytes` bytes.
__device__ __forceinline__ const char* key_row(const AttentionArgs& a, const AttentionUnit& u, int j, int bytes) {
  if (a.cache == nullptr) {
    return static_cast<const char*>(a.k) +
           ((a.row_start[u.row] + int64_t{j}) * a.k_token + u.kv_head * a.k_head) * bytes;
  }
  const char* block = a.cache + a.table[u.row * a.table_stride + j / a.block_size] * a.block_stride;
  const int64_t head = a.latent ? 0 : int64_t{u.kv_head} * a.block_size;
  return block + (head + j % a.block_size) * a.dk * bytes;
}
__device__ __forceinline__ const char* value_row(const AttentionArgs& a, const AttentionUnit& u, int j, int bytes) {
  if (a.latent) return key_row(a, u, j, bytes);
  if (a.cache == nullptr) {
    return static_cast<const char*>(a.v) +
           ((a.row_start[u.row] + int64_t{j}) * a.v_token + u.kv_head * a.v_head) * bytes;
  }
  const char* block = a.cache + a.table[u.row * a.table_stride + j / a.block_size] * a.block_stride;
  const int64_t keys = int64_t{a.kv_heads} * a.block_size * a.dk;
  return block + (keys + (int64_t{u.kv_head} * a.block_size + j % a.block_size) * a.dv) * bytes;
}

// How two ranges of keys are joined; the same in the kernel and in the join of split work.
struct JoinFactors {
  float m, first, second;
};
__device__ __forceinline__ JoinFactors join_factors(float m1, float m2) {
  const float m = fmaxf(m1, m2), base = m == -INFINITY ? 0.0f : m;
  return {m, exp2f(m1 - base), exp2f(m2 - base)};
}
__device__ __forceinline__ float join(float x, float y, const JoinFactors& f) {
  return __fmaf_rn(y, f.second, __fmul_rn(x, f.first));
}

__device__ inline void store_out(const AttentionArgs& a, const AttentionUnit& u, int r, int col, float v, float l) {
  const int64_t at = (u.token0 + r / u.heads) * a.out_token + (u.head0 + r % u.heads) * a.out_head + col;
  float y = l > 0.0f || l != l ? v / l : 0.0f;
  if (a.v_channel != nullptr) y *= a.v_channel[u.kv_head * a.dv + col];
  if (a.out_f32) {
    static_cast<float*>(a.out)[at] = y;
  } else {
    static_cast<bf*>(a.out)[at] = from_float<bf>(y);
  }
}

// Items that a unit of a context makes when each has `rounds` rounds of 256 keys; 0: one item.
__device__ inline int decode_parts(int context, int rounds) {
  return rounds == 0 ? 1 : max(1, (context + 256 * rounds - 1) / (256 * rounds));
}

}  // namespace tern::cuda
