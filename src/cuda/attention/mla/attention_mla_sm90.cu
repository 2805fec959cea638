// Latent attention of 512 + 64 values on Hopper: the kernel, its units, and the join of parts.
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/mla/attention_mla_cluster.cuh"

namespace tern::cuda {
namespace {

// States in memory: quad i of a thread is quad i * 256 + thread.
__device__ __forceinline__ void epilogue_state(const AttentionArgs& a, const LatentState& st, int slot) {
  auto* to = reinterpret_cast<float4*>(a.slots + slot * kStateFloats) + (threadIdx.x - 128);
#pragma unroll
  for (int i = 0; i < 32; ++i)
    to[i * 256] = make_float4(st.o[4 * i], st.o[4 * i + 1], st.o[4 * i + 2], st.o[4 * i + 3]);
  to[32 * 256] = make_float4(st.top[0], st.top[1], st.sum[0], st.sum[1]);
}

// The state of what came before, in memory, with this one behind it.
__device__ __forceinline__ void join_state(const AttentionArgs& a, LatentState& st, int slot) {
  const auto* from = reinterpret_cast<const float4*>(a.slots + slot * kStateFloats) + (threadIdx.x - 128);
  const float4 before = from[32 * 256];
  const JoinFactors f[2] = {join_factors(before.x * a.scale_log2, st.top[0] * a.scale_log2),
                            join_factors(before.y * a.scale_log2, st.top[1] * a.scale_log2)};
  st.top[0] = fmaxf(before.x, st.top[0]), st.top[1] = fmaxf(before.y, st.top[1]);
  st.sum[0] = join(before.z, st.sum[0], f[0]), st.sum[1] = join(before.w, st.sum[1], f[1]);
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const float4 v = from[i * 256];
    st.o[4 * i] = join(v.x, st.o[4 * i], f[0]), st.o[4 * i + 1] = join(v.y, st.o[4 * i + 1], f[0]);
    st.o[4 * i + 2] = join(v.z, st.o[4 * i + 2], f[1]), st.o[4 * i + 3] = join(v.w, st.o[4 * i + 3], f[1]);
  }
}

// 1 / the sum of all weights of the thread's two queries; by both groups. `weight`: [2][64].
__device__ __forceinline__ void latent_divisors(const float (&sum)[2], int side, float* weight, float (&by)[2]) {
  const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float x = sum[r];
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    x += __shfl_xor_sync(0xffffffffu, x, 2);
    if (lane % 4 == 0) weight[side * kLatentQueries + row + 8 * r] = x;
  }
  groups_sync(kBothBarrier, 256);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float x = weight[row + 8 * r] + weight[kLatentQueries + row + 8 * r];
    by[r] = x > 0.0f || x != x ? 1.0f / x : 0.0f;
  }
  groups_sync(kBothBarrier, 256);
}

// Four lanes have two values each of four times eight columns: afterwards each has eight columns of its own.
__device__ __forceinline__ uint4 gather_columns(const uint32_t (&x)[4]) {
  const bool b = (threadIdx.x & 1) != 0, c = (threadIdx.x & 2) != 0;
  const uint32_t low = __shfl_xor_sync(0xffffffffu, b ? x[0] : x[1], 1);
  const uint32_t high = __shfl_xor_sync(0xffffffffu, b ? x[2] : x[3], 1);
  const uint32_t first[2] = {b ? low : x[0], b ? x[1] : low}, second[2] = {b ? high : x[2], b ? x[3] : high};
  const uint32_t y0 = __shfl_xor_sync(0xffffffffu, c ? first[0] : second[0], 2);
  const uint32_t y1 = __shfl_xor_sync(0xffffffffu, c ? first[1] : second[1], 2);
  return c ? uint4{y0, y1, second[0], second[1]} : uint4{first[0], first[1], y0, y1};
}

// Columns 256 side + [32 j, 32 j + 32) of the thread's query `row`.
__device__ __forceinline__ void store_columns(const AttentionArgs& a, const AttentionUnit& u, int row, int side, int j,
                                              const uint32_t (&x)[4]) {
  const uint4 y = gather_columns(x);
  if (row >= u.queries()) return;
  const int64_t at = (u.token0 + row / u.heads) * a.out_token + (u.head0 + row % u.heads) * a.out_head;
  *reinterpret_cast<uint4*>(static_cast<bf*>(a.out) + at + side * 256 + j * 32 + (threadIdx.x & 3) * 8) = y;
}

template <int kSide>
__device__ __forceinline__ void store_result(const AttentionArgs& a, const LatentItem& x, const LatentShared& sh,
                                             LatentState& st) {
  const int row = threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;
  float by[2];
  latent_divisors(st.sum, kSide, sh.weight, by);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      uint32_t p[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (4 * j + i) + 2 * r;
        p[i] = pack2(st.o[at] * by[r], st.o[at + 1] * by[r]);
      }
      store_columns(a, x.u, row + 8 * r, kSide, j, p);
    }
  }
}

template <int kClusterSize, int kSide>
__device__ void latent_attend(const AttentionArgs& a, const LatentShared& sh) {
  const int row = threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4, each = a.plan[0];
  LatentIterator w;
  LatentState st;
  for (uint32_t q_phase = 0;; q_phase ^= 1) {
    barrier_wait(sh.q_full, q_phase);
    w.x = *sh.item;
    if (w.x.part < 0) return;
    w.x.begin = __shfl_sync(0xffffffffu, w.x.begin, 0), w.x.end = __shfl_sync(0xffffffffu, w.x.end, 0);
    const AttentionUnit& u = w.x.u;
    w.open = min(u.context, u.position0 + 1);
    w.visible[0] = max(u.visible(row), 1), w.visible[1] = max(u.visible(row + 8), 1);
    st.clear();
    if (w.x.begin >= w.x.end) barrier_arrive(sh.q_free);
    const int slot = each == 0 ? static_cast<int>(blockIdx.x) : w.x.first + w.x.part * a.chunks;
    const int stride = each == 0 && a.deterministic_parts ? kSegment : max(w.x.end, 1);
    for (int begin = w.x.begin; begin < w.x.end; begin += stride) {
      streamk_pairs<kClusterSize, kSide>(a, sh, w, begin, min(begin + stride, w.x.end), st);
      if (begin > w.x.begin) join_state(a, st, slot);  // what earlier segments left
      if (begin + stride >= w.x.end) break;
      epilogue_state(a, st, slot);
      st.clear();
    }
    if (each == 0) {
      store_result<kSide>(a, w.x, sh, st);
    } else {
      epilogue_state(a, st, slot);
    }
  }
}

// kClusterSize: blocks of a cluster, which have different heads of the same tokens and read the same keys.
template <int kClusterSize>
__global__ void __launch_bounds__(kLatentThreads, 1)
    latent_kernel(const AttentionArgs a, const __grid_constant__ LatentMaps maps) {
  extern __shared__ __align__(1024) char memory[];
  const LatentShared sh(memory);
  if (threadIdx.x == 0) {
    barrier_init(sh.q_full, 1), barrier_init(sh.q_free, 256);
    for (int t = 0; t < 2; ++t) {
      for (int c = 0; c < kColumns; ++c) barrier_init(&sh.full[t][c], 1);
      for (int h = 0; h < 2; ++h) barrier_init(&sh.free[t][h], kClusterSize);
    }
    barrier_init_done();
    prefetch_map(&maps.q), prefetch_map(&maps.pages);
  }
  if constexpr (kClusterSize > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  let_next_start();
  if (threadIdx.x < 128) {
    registers_down<24>();
    if (threadIdx.x < 32) {
      latent_producer<kClusterSize, 0>(a, maps, sh);
    } else if (threadIdx.x < 64) {
      latent_producer<kClusterSize, 1>(a, maps, sh);
    }
  } else {
    registers_up<240>();
    wait_for_previous();
    if (threadIdx.x < 256) {
      latent_attend<kClusterSize, 0>(a, sh);
    } else {
      latent_attend<kClusterSize, 1>(a, sh);
    }
  }
  if constexpr (kClusterSize > 1) {
    __syncwarp();
    cluster_sync();  // the other block still counts on this one's barriers
  }
}

constexpr int kQuadsOfUnit = 32;  // groups of four values that a thread left, without its tops and sums

// Joins the states of a unit's parts in ascending order, with the threads that left them: kQuads quads of each.
template <int kQuads>
__device__ void join_slice(const AttentionArgs& a, const LatentItem& x, int quad0, float* weight) {
  constexpr int kAhead = 8 / kQuads;  // parts whose states are under way at once
  const int side = threadIdx.x / 128, row = threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;
  const auto* from = reinterpret_cast<const float4*>(a.slots + x.first * kStateFloats) + threadIdx.x;
  const int64_t next = a.chunks * kStateFloats / 4;
  float top[2] = {}, sum[2] = {}, o[kQuads][4] = {};
  for (int p0 = 0; p0 < x.parts; p0 += kAhead) {
    float4 s[kAhead], v[kAhead][kQuads];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = min(p0 + i, x.parts - 1) * next;
      s[i] = from[at + kQuadsOfUnit * 256];
#pragma unroll
      for (int j = 0; j < kQuads; ++j) v[i][j] = from[at + (quad0 + j) * 256];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (p0 + i >= x.parts) break;
      const bool first = p0 + i == 0;
      const JoinFactors f[2] = {join_factors(top[0] * a.scale_log2, s[i].x * a.scale_log2),
                                join_factors(top[1] * a.scale_log2, s[i].y * a.scale_log2)};
      top[0] = first ? s[i].x : fmaxf(top[0], s[i].x), top[1] = first ? s[i].y : fmaxf(top[1], s[i].y);
      sum[0] = first ? s[i].z : join(sum[0], s[i].z, f[0]), sum[1] = first ? s[i].w : join(sum[1], s[i].w, f[1]);
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        o[j][0] = first ? v[i][j].x : join(o[j][0], v[i][j].x, f[0]);
        o[j][1] = first ? v[i][j].y : join(o[j][1], v[i][j].y, f[0]);
        o[j][2] = first ? v[i][j].z : join(o[j][2], v[i][j].z, f[1]);
        o[j][3] = first ? v[i][j].w : join(o[j][3], v[i][j].w, f[1]);
      }
    }
  }
  float by[2];
  latent_divisors(sum, side, weight, by);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const AttentionUnit& u = x.u;
    const int q = row + 8 * r;
    if (q >= u.queries()) continue;
    const int64_t at = (u.token0 + q / u.heads) * a.out_token + (u.head0 + q % u.heads) * a.out_head;
    bf* to = static_cast<bf*>(a.out) + at + side * 256 + quad0 * 8 + (threadIdx.x & 3) * 2;
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      *reinterpret_cast<uint32_t*>(to + j * 8) = pack2(o[j][2 * r] * by[r], o[j][2 * r + 1] * by[r]);
    }
  }
}

template <int kQuads>
__device__ void join_units(const AttentionArgs& a, float* weight) {
  constexpr int kSlices = kQuadsOfUnit / kQuads;
  const int* units = a.plan + plan_words(a.rows);
  for (int at = blockIdx.x; at < units[1] * kSlices; at += gridDim.x) {
    const int row = row_by_warp(units + 2, a.rows, at / kSlices), index = at / kSlices - units[2 + row];
    const int item = index / a.chunks * a.chunks * latent_parts(a, row) + index % a.chunks;
    join_slice<kQuads>(a, latent_item(a, a.plan[2 + row] + item), at % kSlices * kQuads, weight);
  }
}

// Few units are cut finer, so that all of the GPU joins them.
__global__ void __launch_bounds__(256) latent_join_kernel(const AttentionArgs a) {
  __shared__ float weight[2 * kLatentQueries];
  let_next_start();
  const bool whole = a.plan[0] == 0;    // read early, as latent_producer() does
  if (whole && blockIdx.x > 0) return;  // the first block waits for all; others make room for the next kernel
  wait_for_previous();
  if (whole) return;
  if (a.plan[plan_words(a.rows) + 1] * kQuadsOfUnit <= 2 * static_cast<int>(gridDim.x)) {
    join_units<1>(a, weight);
  } else {
    join_units<4>(a, weight);
  }
}

}  // namespace

static_assert(LatentShared::kBytes <= kDecodeShared);

AttentionArgs latent_units(AttentionArgs a, device::Stream stream) {
  a.chunks = (a.heads + kLatentQueries - 1) / kLatentQueries;
  a.chunk_heads = (a.heads + a.chunks - 1) / a.chunks;
  a.unit_tokens = kLatentQueries / a.chunk_heads;
  a.slot_capacity = kSplitBytes / (kStateFloats * 4);
  a.part_blocks = state(stream).multiprocessors;
  a.deterministic_parts = state(stream).deterministic;
  return a;
}

namespace {

template <int kClusterSize>
Status run_latent(const AttentionArgs& a, LatentMaps& maps, const char* name, device::Stream stream) {
  if (Status s = tensor_map_pages(a.cache, kLatentWidth, a.block_size, a.block_stride, kLatentKeys / kClusterSize,
                                  &maps.pages);
      !s.ok()) {
    return s;
  }
  const auto blocks = static_cast<unsigned>(a.part_blocks);
  return launch(stream, name, {blocks, kLatentThreads, LatentShared::kBytes, kClusterSize}, latent_kernel<kClusterSize>,
                a, maps);
}

}  // namespace

Status attention_mla_sm90(const AttentionArgs& a, int64_t tokens, device::Stream stream) {
  constexpr const char* kName = "attention_latent_sm90";
  LatentMaps maps;
  if (Status s = tensor_map_heads(a.q, kLatentWidth, a.heads, tokens, a.q_head, a.q_token, a.chunk_heads, a.unit_tokens,
                                  &maps.q);
      !s.ok()) {
    return s;
  }
  const Status run = a.chunks % 2 == 0 && a.part_blocks % 2 == 0 ? run_latent<2>(a, maps, kName, stream)
                                                                 : run_latent<1>(a, maps, kName, stream);
  if (!run.ok()) return run;
  return launch(stream, kName, {4 * static_cast<unsigned>(a.part_blocks), 256}, latent_join_kernel, a);
}

}  // namespace tern::cuda
