// The kernel of attention_decode.cuh: from items of work to results.
#pragma once

#include "cuda/attention/portable/attention_decode.cuh"

namespace tern::cuda {

// `parts`: items per unit.
__device__ inline AttentionUnit portable_unit(const AttentionArgs& a, int item, int rounds, int* parts) {
  AttentionUnit u;
  u.row = row_by_warp(a.decode_plan + 2, a.rows, item);
  const int start = a.row_start[u.row], n = a.row_start[u.row + 1] - start;
  u.context = a.context_len[u.row], u.causal = true;
  *parts = decode_parts(u.context, rounds);
  int index = item - a.decode_plan[2 + u.row];
  u.segment = index % *parts, u.segments = *parts;
  index /= *parts;
  const int chunk = index % a.decode_chunks, block = index / a.decode_chunks / a.kv_heads, group = a.heads / a.kv_heads;
  u.kv_head = index / a.decode_chunks % a.kv_heads;
  u.head0 = u.kv_head * group + chunk * a.decode_heads;
  u.heads = min(a.decode_heads, group - chunk * a.decode_heads);
  u.token0 = start + block * a.decode_tokens;
  u.tokens = min(a.decode_tokens, start + n - u.token0);
  u.position0 = u.context - n + block * a.decode_tokens;
  return u;
}

template <class S>
__device__ void portable_queries(const AttentionArgs& a, const AttentionUnit& u, const PortableDecodeShared<S>& sh,
                                 uint32_t (&q)[S::kD / 16][4]) {
  for (int i = threadIdx.x; i < S::kM * S::kD / 8; i += S::kThreads) {
    const int r = i / (S::kD / 8), c = i % (S::kD / 8);
    Vec8 x{};
    if (r < u.queries() && 8 * c < a.dk) {
      const int64_t at = (u.token0 + r / u.heads) * a.q_token + (u.head0 + r % u.heads) * a.q_head + 8 * c;
      x = a.q_f32 ? load8(static_cast<const float*>(a.q) + at) : load8(static_cast<const bf*>(a.q) + at);
      if constexpr (S::kCodes) scale_query(a, u, 8 * c, x);
    }
    store8(reinterpret_cast<bf*>(sh.q + r * S::kRow + ((c ^ (r & 7)) * 16)), x);
  }
  __syncthreads();
  const int lane = threadIdx.x & 31, row = lane % 16;
#pragma unroll
  for (int k = 0; k < S::kD / 16; ++k) {
    if constexpr (S::kCodes) {
      portable_code_query<S>(q[k], sh.q, k);
    } else {
      load_matrix4(q[k], sh.q + row * S::kRow + (((2 * k + lane / 16) ^ (row & 7)) * 16));
    }
  }
}

template <class S>
__device__ void portable_store(const AttentionArgs& a, const AttentionUnit& u, const PortableDecodeTotal<S>& total) {
  const int r = threadIdx.x / 8;
  if (r >= u.queries()) return;
  const float l = total.state.l;
  const int64_t at = (u.token0 + r / u.heads) * a.out_token + (u.head0 + r % u.heads) * a.out_head;
  bf* row = static_cast<bf*>(a.out) + at;
  const bool whole = !a.out_f32 && reinterpret_cast<uintptr_t>(row) % 8 == 0;
#pragma unroll
  for (int i = 0; i < S::kOwn; i += 4) {
    const int col = PortableDecodeTotal<S>::column(i);
    if (col >= a.dv) continue;
    if (whole) {  // dv is a multiple of 8
      float y[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        y[j] = l > 0.0f || l != l ? total.v[i + j] / l : 0.0f;
        if (S::kCodes && a.v_channel != nullptr) y[j] *= a.v_channel[u.kv_head * a.dv + col + j];
      }
      *reinterpret_cast<uint2*>(row + col) = make_uint2(pack2(y[0], y[1]), pack2(y[2], y[3]));
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) store_out(a, u, r, col + j, total.v[i + j], l);
  }
}

// A part's state for whoever joins the unit's parts: m and l of 16 queries, then their sums.
template <class S>
__device__ __forceinline__ float* decode_slot(const AttentionArgs& a, int item) {
  return a.slots + int64_t{item} * (2 * S::kM + S::kM * S::kD);
}

// Leaves this part's state; the block that comes last joins all of them, in ascending order.
template <class S>
__device__ void portable_join(const AttentionArgs& a, const AttentionUnit& u, int item, int rounds,
                              const PortableDecodeShared<S>& sh, const PortableDecodeTotal<S>& mine) {
  const int r = threadIdx.x / 8, first = item - u.segment;
  float* slot = decode_slot<S>(a, item);
  if (r < u.queries()) {
    if (threadIdx.x % 8 == 0) slot[r] = mine.state.m, slot[S::kM + r] = mine.state.l;
#pragma unroll
    for (int i = 0; i < S::kOwn; i += 4) {
      *reinterpret_cast<float4*>(slot + 2 * S::kM + r * S::kD + PortableDecodeTotal<S>::column(i)) =
          make_float4(mine.v[i], mine.v[i + 1], mine.v[i + 2], mine.v[i + 3]);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *sh.last = atomicAdd(a.decode_counters + first, 1) == u.segments - 1;
  __syncthreads();
  if (*sh.last == 0) return;
  __threadfence();
  if (threadIdx.x == 0) a.decode_counters[first] = 0;  // for the next layer
  if (r >= u.queries()) return;
  const int per_segment = kSegment / (256 * rounds);
  PortableDecodeTotal<S> segment, total;
#pragma unroll 2
  for (int p = 0; p < u.segments; ++p) {
    const float* from = decode_slot<S>(a, first + p);
    const PortableDecodeState state{__ldcg(from + r), __ldcg(from + S::kM + r)};
    float v[S::kOwn];
#pragma unroll
    for (int i = 0; i < S::kOwn; i += 4) {
      const float4 y =
          __ldcg(reinterpret_cast<const float4*>(from + 2 * S::kM + r * S::kD + PortableDecodeTotal<S>::column(i)));
      v[i] = y.x, v[i + 1] = y.y, v[i + 2] = y.z, v[i + 3] = y.w;
    }
    if (per_segment == 1) {
      total.add(state, v);
      continue;
    }
    segment.add(state, v);
    if ((p + 1) % per_segment == 0 || p + 1 == u.segments) {
      total.add(segment.state, segment.v);
      segment = {};
    }
  }
  portable_store(a, u, total);
}

template <class S>
__device__ void portable_item(const AttentionArgs& a, int item, int rounds, const PortableDecodeShared<S>& sh) {
  constexpr int kRound = S::kWarps * S::kTile, kPerSegment = kSegment / kRound;
  int parts = 1;
  const AttentionUnit u = portable_unit(a, item, rounds, &parts);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, end = u.most();
  const int all = (end + kRound - 1) / kRound, round0 = rounds == 0 ? 0 : u.segment * rounds;
  const int round1 = rounds == 0 ? all : min(all, round0 + rounds);
  const int first = round0 * S::kWarps + warp, present = (end + S::kTile - 1) / S::kTile;  // tiles
  const int mine = min((present - first + S::kWarps - 1) / S::kWarps, round1 - round0);
  PortableDecodeRing<S> ring{a, u, sh.ring + warp * S::kRing * S::kPieceBytes, first, max(mine, 0), end};
  ring.load_entries(0);
  for (int p = 0; p < S::kRing - 1; ++p) ring.issue(p);
  uint32_t q[S::kD / 16][4];
  portable_queries(a, u, sh, q);
  const int visible[2] = {u.visible(lane / 4), u.visible(lane / 4 + 8)};
  PortableDecodeTotal<S> segment, total;
  for (int t = round0; t < round1; ++t) {
    const int tile = t - round0;
    const bool here = tile < ring.tiles;
    PortableDecodeState st[2];
    float acc[S::kD / 8][4] = {};
    if (here) {
      PortableDecodeScores s = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const char* piece = ring.take(8 * tile + i);
        if constexpr (S::kCodes) {
          portable_code_scores<S>(piece, q, s[2 * i], s[2 * i + 1]);
        } else {
          portable_scores<S>(piece, q, s[2 * i], s[2 * i + 1]);
        }
      }
      portable_softmax<S>(s, a.scale_log2, ring.key(tile), visible, st);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const char* piece = ring.take(8 * tile + 4 + i);
        if constexpr (S::kCodes) {
          portable_code_values<S>(piece, s[2 * i], s[2 * i + 1], ring.key(tile) + S::kPiece * i, end, acc);
        } else {
          portable_values<S>(piece, s[2 * i], s[2 * i + 1], acc);
        }
      }
    }
    portable_round(sh, here, st, acc, segment);
    if ((t + 1) % kPerSegment == 0 || t + 1 == round1) {
      total.add(segment.state, segment.v);
      segment = {};
    }
  }
  copy_wait<0>();
  if (parts == 1) {
    portable_store(a, u, total);
  } else {
    portable_join(a, u, item, rounds, sh, total);
  }
  __syncthreads();
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBytes <= 113 * 1024 ? 2 : 1)
    portable_decode_kernel(const AttentionArgs a) {
  extern __shared__ __align__(16) char memory[];
  let_next_start();
  wait_for_previous();
  const PortableDecodeShared<S> sh(memory);
  const int rounds = a.decode_plan[0], items = a.decode_plan[1];
  for (int item = blockIdx.x; item < items; item += gridDim.x) portable_item(a, item, rounds, sh);
}

}  // namespace tern::cuda
