// Attention of long rows on Hopper, in the manner of FlashAttention-3 (arXiv 2407.08608): one warp feeds keys and
// values through the copy engine, two warpgroups have 64 queries each, and in each the next scores are computed under
// the softmax of the last.
//
// A unit is a KV head and up to 128 queries: all heads of the group for some tokens. Keys come in tiles of 128 at fixed
// positions of their row, and a query's chain of operations is the same whatever else is in its unit.
#pragma once

#include "cuda/attention_unit.cuh"
#include "cuda/hopper.cuh"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"
#include "cuda/wgmma_registers.cuh"

namespace tern::cuda {
namespace {

using namespace hopper;

constexpr int kQueries = 128, kKeys = 128, kPage = 64, kStages = 2, kThreads = 384;

// The arrays as the copy engine sees them; of a paged cache keys and values are one.
struct LongMaps {
  CUtensorMap q, k, v;
};

// kD: room for a head's values, a multiple of 16; what is missing to it reads as zero.
template <int kD>
struct Shapes {
  static constexpr int kHalves = (kD + 63) / 64;
  static constexpr int kHalfBytes = kKeys * 128;  // 128 rows of 64 values
  static constexpr int kTileBytes = kHalves * kHalfBytes;
  static constexpr size_t kBytes = 1024 + kTileBytes * 3 * kStages + 8 * 6 * kStages + kStages * sizeof(AttentionUnit);
};

// Places in shared memory with the barriers that say when they are full and when they are free again.
struct Ring {
  uint64_t *full, *free;
  char* data;
};
struct Rings {
  Ring q, k, v;
  AttentionUnit* unit;  // beside each place for queries
};

struct Place {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};

// The longest units first: within a row the last tokens see the most keys.
__device__ __forceinline__ int item_of(int round, int items) {
  const int g = static_cast<int>(gridDim.x), b = static_cast<int>(blockIdx.x);
  return items - 1 - (round * g + ((round & 1) != 0 ? g - 1 - b : b));
}

// Two pages into a stage: keys or values of a tile.
template <int kD>
__device__ __forceinline__ void load_pages(const AttentionArgs& a, const CUtensorMap* map, const AttentionUnit& u,
                                           bool values, const int (&block)[2], int page, int last_page, char* to,
                                           uint64_t* full) {
  using S = Shapes<kD>;
  barrier_expect(full, S::kTileBytes);
  const int head = (values ? a.kv_heads : 0) + u.kv_head;
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const int offset = min(page + p, last_page) * kPage % a.block_size;
#pragma unroll
    for (int h = 0; h < S::kHalves; ++h) {
      load_box(to + h * S::kHalfBytes + p * kPage * 128, map, full, h * 64, head * a.block_size + offset, block[p],
               kEvictNormal);
    }
  }
}

// The same of packed rows: values of one head of 128 tokens.
template <int kD>
__device__ __forceinline__ void load_packed(const CUtensorMap* map, int head, int token, char* to, uint64_t* full) {
  using S = Shapes<kD>;
  barrier_expect(full, S::kTileBytes);
#pragma unroll
  for (int h = 0; h < S::kHalves; ++h) load_box(to + h * S::kHalfBytes, map, full, h * 64, head, token, kEvictNormal);
}

// Queries of a unit: rows of (token, head), as the copy engine walks through the boxes.
template <int kD>
__device__ __forceinline__ void load_queries(const AttentionArgs& a, const CUtensorMap* map, const AttentionUnit& u,
                                             char* to, uint64_t* full) {
  using S = Shapes<kD>;
  barrier_expect(full, static_cast<uint32_t>(S::kHalves * 128 * a.chunk_heads * a.unit_tokens));
#pragma unroll
  for (int h = 0; h < S::kHalves; ++h) {
    load_box(to + h * S::kHalfBytes, map, full, h * 64, u.head0, u.token0, kEvictFirst);
  }
}

// What the producer has to load for one unit, tile by tile.
template <int kD, bool kPaged>
class Tiles {
 public:
  __device__ Tiles(const AttentionArgs& a, const LongMaps& maps, const AttentionUnit& u)
      : a_(a), maps_(maps), u_(u), last_page_((u.most() - 1) / kPage), token_(a.row_start[u.row]) {}
  // By the whole warp; its first lane waits for the place and loads. `blocks` belongs to keys or to values: the blocks
  // of 16 tiles, a lane for each page.
  __device__ __forceinline__ void load(bool values, int tile, int& blocks, const Ring& ring, Place& at) {
    char* to = ring.data + at.stage * Shapes<kD>::kTileBytes;
    uint64_t* full = &ring.full[at.stage];
    const CUtensorMap* map = values ? &maps_.v : &maps_.k;
    const bool first = (threadIdx.x & 31) == 0;
    if constexpr (kPaged) {
      if (tile % 16 == 0) blocks = block_of(2 * tile + static_cast<int>(threadIdx.x & 31));
      const int block[2] = {__shfl_sync(0xffffffffu, blocks, tile % 16 * 2),
                            __shfl_sync(0xffffffffu, blocks, tile % 16 * 2 + 1)};
      if (first) {
        barrier_wait(&ring.free[at.stage], at.phase ^ 1);
        load_pages<kD>(a_, map, u_, values, block, 2 * tile, last_page_, to, full);
      }
    } else if (first) {
      barrier_wait(&ring.free[at.stage], at.phase ^ 1);
      load_packed<kD>(map, u_.kv_head, token_ + tile * kKeys, to, full);
    }
    at.next();
  }

 private:
  __device__ __forceinline__ int block_of(int page) const {
    return a_.table[u_.row * a_.table_stride + min(page, last_page_) * kPage / a_.block_size];
  }
  const AttentionArgs& a_;
  const LongMaps& maps_;
  const AttentionUnit& u_;
  const int last_page_, token_;
};

// The producer warp. Keys run one tile ahead of values.
template <int kD, bool kPaged>
__device__ void feed(const AttentionArgs& a, const LongMaps& maps, const Rings& rings) {
  using S = Shapes<kD>;
  const int items = a.plan[1];
  Place q, k, v;
  for (int round = 0; round * static_cast<int>(gridDim.x) < items; ++round) {
    const int item = item_of(round, items);
    if (item < 0) continue;
    const AttentionUnit u = unit_of(a, item, false);
    if ((threadIdx.x & 31) == 0) {
      barrier_wait(&rings.q.free[q.stage], q.phase ^ 1);
      rings.unit[q.stage] = u;
      load_queries<kD>(a, &maps.q, u, rings.q.data + q.stage * S::kTileBytes, &rings.q.full[q.stage]);
    }
    q.next();
    Tiles<kD, kPaged> tiles(a, maps, u);
    const int count = (u.most() + kKeys - 1) / kKeys;
    int key_blocks = 0, value_blocks = 0;
    for (int t = 0; t <= count; ++t) {
      if (t < count) tiles.load(false, t, key_blocks, rings.k, k);
      if (t > 0) tiles.load(true, t - 1, value_blocks, rings.v, v);
    }
  }
}

template <int kD>
__device__ __forceinline__ void score(float (&s)[64], const char* q, const char* k, int group) {
  using S = Shapes<kD>;
  const uint64_t dq = tile_descriptor(shared_address(q + group * 64 * 128)), dk = tile_descriptor(shared_address(k));
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const int at = i / 4 * (S::kHalfBytes >> 4) + i % 4 * 2;
    Wgmma<128>::run(s, dq + at, dk + at, i > 0);
  }
  wgmma_commit();
}

template <int kD>
__device__ __forceinline__ void mix(float (&o)[kD / 2], const uint32_t (&p)[32], const char* v) {
  using S = Shapes<kD>;
  const uint64_t dv = column_descriptor(shared_address(v), S::kHalfBytes);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    WgmmaRegisters<kD>::run(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], dv + i * (16 * 128 >> 4));
  }
  wgmma_commit();
}

// What a thread knows of its two queries.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, alpha[2];
};

// Scores become weights; alpha is what older sums are scaled by. Columns of this thread: 8 j + 2 (lane % 4) + 0, 1.
__device__ __forceinline__ void weigh(float (&s)[64], Softmax& x, float scale, const int (&visible)[2], int j0,
                                      bool masked) {
  const int column = (threadIdx.x & 3) * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (masked) {
      const int left = visible[r] - j0 - column;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        if (8 * j >= left) s[4 * j + 2 * r] = -INFINITY;
        if (8 * j + 1 >= left) s[4 * j + 2 * r + 1] = -INFINITY;
      }
    }
    float most[4] = {x.top[r], -INFINITY, -INFINITY, -INFINITY};  // four chains hide the latency of one
#pragma unroll
    for (int j = 0; j < 16; ++j) most[j % 4] = fmaxf(most[j % 4], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    float top = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float base = top == -INFINITY ? 0.0f : top * scale;
    // Exactly one where nothing greater came: a tile that is masked for a query must leave its bits alone.
    x.alpha[r] = top == x.top[r] ? 1.0f : power2(__fmaf_rn(x.top[r], scale, -base));
    x.top[r] = top;
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float& first = s[4 * j + 2 * r];
      float& second = s[4 * j + 2 * r + 1];
      first = power2(__fmaf_rn(first, scale, -base));
      second = power2(__fmaf_rn(second, scale, -base));
      sums[j % 4] += first + second;
    }
    const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    x.sum[r] = __fmaf_rn(x.sum[r], x.alpha[r], sum);
  }
}

__device__ __forceinline__ void pack(const float (&s)[64], uint32_t (&p)[32]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    p[4 * i] = pack2(s[8 * i], s[8 * i + 1]);
    p[4 * i + 1] = pack2(s[8 * i + 2], s[8 * i + 3]);
    p[4 * i + 2] = pack2(s[8 * i + 4], s[8 * i + 5]);
    p[4 * i + 3] = pack2(s[8 * i + 6], s[8 * i + 7]);
  }
}

// What stands behind the context in its last block may be anything, NaN too: times a weight of zero it must be zero.
template <int kD>
__device__ void clear_tail(char* v, int rows, int group) {
  using S = Shapes<kD>;
  constexpr int kChunks = kD / 8;
  for (int i = threadIdx.x % 128; i < (kKeys - rows) * kChunks; i += 128) {
    const int row = rows + i / kChunks, chunk = i % kChunks;
    *reinterpret_cast<uint4*>(v + chunk / 8 * S::kHalfBytes + row * 128 + chunk % 8 * 16) = uint4{0, 0, 0, 0};
  }
  shared_to_engine();
  group_sync(1 + group, 128);
}

template <int kD>
__device__ __forceinline__ void store_queries(const AttentionArgs& a, const AttentionUnit& u, int group,
                                              const float (&o)[kD / 2], Softmax& x) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    x.sum[r] += __shfl_xor_sync(0xffffffffu, x.sum[r], 1);
    x.sum[r] += __shfl_xor_sync(0xffffffffu, x.sum[r], 2);
    const int row = group * 64 + warp * 16 + lane / 4 + 8 * r;
    if (row >= u.queries()) continue;
    const float factor = x.sum[r] > 0.0f || x.sum[r] != x.sum[r] ? 1.0f / x.sum[r] : 0.0f;
    const int64_t at = (u.token0 + row / u.heads) * a.out_token + (u.head0 + row % u.heads) * a.out_head + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kD / 8; ++j) {
      if (8 * j >= a.dv) break;
      const float first = o[4 * j + 2 * r] * factor, second = o[4 * j + 2 * r + 1] * factor;
      if (a.out_f32) {
        *reinterpret_cast<float2*>(static_cast<float*>(a.out) + at + 8 * j) = make_float2(first, second);
      } else {
        *reinterpret_cast<uint32_t*>(static_cast<bf*>(a.out) + at + 8 * j) = pack2(first, second);
      }
    }
  }
}

template <int kD>
__device__ void attend(const AttentionArgs& a, int group, const Rings& rings, Place& at_q, Place& k, Place& v) {
  using S = Shapes<kD>;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
  barrier_wait(&rings.q.full[at_q.stage], at_q.phase);
  const AttentionUnit& u = rings.unit[at_q.stage];
  const char* q = rings.q.data + at_q.stage * S::kTileBytes;
  const int tiles = (u.most() + kKeys - 1) / kKeys;
  const int open = u.causal ? min(u.context, u.position0 + 1) : u.context;  // keys that all see
  const int row = group * 64 + warp * 16 + lane / 4;
  const int visible[2] = {max(u.visible(row), 1), max(u.visible(row + 8), 1)};
  float s[64], o[kD / 2];
#pragma unroll
  for (int i = 0; i < kD / 2; ++i) o[i] = 0.0f;
  uint32_t p[32];
  Softmax x;
  barrier_wait(&rings.k.full[k.stage], k.phase);
  score<kD>(s, q, rings.k.data + k.stage * S::kTileBytes, group);
  wgmma_wait<0>();
  if (leader) barrier_arrive(&rings.k.free[k.stage]);
  k.next();
  weigh(s, x, a.scale_log2, visible, 0, kKeys > open);
  pack(s, p);
  for (int t = 1; t < tiles; ++t) {
    barrier_wait(&rings.k.full[k.stage], k.phase);
    score<kD>(s, q, rings.k.data + k.stage * S::kTileBytes, group);
    barrier_wait(&rings.v.full[v.stage], v.phase);
    mix<kD>(o, p, rings.v.data + v.stage * S::kTileBytes);
    wgmma_wait<1>();
    if (leader) barrier_arrive(&rings.k.free[k.stage]);
    k.next();
    weigh(s, x, a.scale_log2, visible, t * kKeys, (t + 1) * kKeys > open);
    wgmma_wait<0>();
    if (leader) barrier_arrive(&rings.v.free[v.stage]);
    v.next();
    pack(s, p);
#pragma unroll
    for (int j = 0; j < kD / 8; ++j) {
      o[4 * j] *= x.alpha[0], o[4 * j + 1] *= x.alpha[0];
      o[4 * j + 2] *= x.alpha[1], o[4 * j + 3] *= x.alpha[1];
    }
  }
  barrier_wait(&rings.v.full[v.stage], v.phase);
  char* values = rings.v.data + v.stage * S::kTileBytes;
  if (u.most() % kKeys != 0) clear_tail<kD>(values, u.most() % kKeys, group);
  mix<kD>(o, p, values);
  wgmma_wait<0>();
  if (leader) barrier_arrive(&rings.v.free[v.stage]);
  v.next();
  store_queries<kD>(a, u, group, o, x);
  group_sync(1 + group, 128);  // all have read the unit
  if (leader) barrier_arrive(&rings.q.free[at_q.stage]);
  at_q.next();
}

template <int kD, bool kPaged>
__global__ void __launch_bounds__(kThreads, 1)
    long_rows_kernel(const AttentionArgs a, const __grid_constant__ LongMaps maps) {
  using S = Shapes<kD>;
  extern __shared__ char memory[];
  char* data = memory + (1024 - (shared_address(memory) & 1023)) % 1024;
  auto* barriers = reinterpret_cast<uint64_t*>(data + 3 * kStages * S::kTileBytes);
  Rings rings;
  int i = 0;
  for (Ring* r : {&rings.q, &rings.k, &rings.v}) {
    r->data = data + i * kStages * S::kTileBytes;
    r->full = barriers + 2 * i * kStages, r->free = r->full + kStages;
    ++i;
  }
  rings.unit = reinterpret_cast<AttentionUnit*>(barriers + 6 * kStages);
  if (threadIdx.x == 0) {
    for (int b = 0; b < 6 * kStages; ++b) barrier_init(&barriers[b], b / kStages % 2 == 0 ? 1 : 2);
    barrier_init_done();
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
  }
  __syncthreads();
  let_next_start();
  wait_for_previous();
  if (threadIdx.x < 128) {
    registers_down<24>();
    if (threadIdx.x < 32) feed<kD, kPaged>(a, maps, rings);
  } else {
    registers_up<240>();
    const int group = static_cast<int>(threadIdx.x) / 128 - 1, items = a.plan[1];
    Place q, k, v;
    for (int round = 0; round * static_cast<int>(gridDim.x) < items; ++round) {
      if (item_of(round, items) >= 0) attend<kD>(a, group, rings, q, k, v);
    }
  }
}

template <int kD, bool kPaged>
Status launch_long_rows(const char* name, const AttentionArgs& a, const LongMaps& maps, device::Stream stream) {
  // Each time: it holds for the current device alone.
  if (Status s = allow_shared(name, long_rows_kernel<kD, kPaged>, Shapes<kD>::kBytes); !s.ok()) return s;
  const Shape shape{dim3(static_cast<unsigned>(state(stream).multiprocessors)), dim3(kThreads), Shapes<kD>::kBytes};
  return launch(stream, name, shape, long_rows_kernel<kD, kPaged>, a, maps);
}

}  // namespace
}  // namespace tern::cuda
