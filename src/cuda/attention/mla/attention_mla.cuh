// Latent attention (rows of 512 values and 64 rotary ones; all heads read one row per token) on Hopper, after what is
// published of FlashMLA (github.com/deepseek-ai/FlashMLA, "new kernel deep dive").
//
// A block has 64 queries: heads of one token, or of several. Their results, 64 x 512 float32, fill the registers of two
// warpgroups, which have 256 columns each. Tiles of 64 keys come in pairs: the left group scores the even one, the
// right group the odd one, and each weighs what it scored and mixes its own columns of both, so that one's softmax is
// under the other's products. Weights travel through the rotary part of their tile, which nobody reads any more.
//
// Tiles, and the pairs they are taken in, lie at fixed positions of their row: a query's chain of operations is the
// same whatever else is in its unit. A unit may be cut into parts, whose states are joined in ascending order.
#pragma once

#include "cuda/attention/attention_unit.cuh"
#include "cuda/attention/choice.h"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/tensor_map.h"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace tern::cuda {
namespace {

using namespace hopper;

constexpr int kLatentQueries = 64, kLatentThreads = 384;
constexpr int kColumns = kLatentWidth / 64, kColumnBytes = 64 * 128, kRotary = kColumns - 1;  // 64 values of 64 rows
constexpr int kLatentTileBytes = kColumns * kColumnBytes;
// What a part leaves: by thread of the two warpgroups, 128 sums and its two rows' tops and weights.
constexpr int kStateQuads = kLatentValues / 2 / 8 + 1;  // float4
constexpr int64_t kStateFloats = int64_t{kStateQuads} * 256 * 4;

struct LatentMaps {
  CUtensorMap q, pages;
};

struct LatentItem {
  AttentionUnit u;
  int begin, end;   // keys
  int part, parts;  // -1: no more items; how many parts have keys
  int first;        // state of part 0; the next part's is `chunks` further on
};

struct LatentShared {
  char *q, *tile[2];
  uint64_t *q_full, *q_free, *full[2], *free[2];  // of a tile: by column; by half
  float *top, *weight;                            // [2][64]: by group and query
  LatentItem* item;
  static constexpr size_t kBytes =
      3 * kLatentTileBytes + 8 * (2 + 2 * kColumns + 4) + 4 * 4 * kLatentQueries + sizeof(LatentItem);
  __device__ explicit LatentShared(char* memory) {
    q = memory, tile[0] = q + kLatentTileBytes, tile[1] = tile[0] + kLatentTileBytes;
    q_full = reinterpret_cast<uint64_t*>(tile[1] + kLatentTileBytes), q_free = q_full + 1;
    full[0] = q_free + 1, full[1] = full[0] + kColumns;
    free[0] = full[1] + kColumns, free[1] = free[0] + 2;
    top = reinterpret_cast<float*>(free[1] + 2), weight = top + 2 * kLatentQueries;
    item = reinterpret_cast<LatentItem*>(weight + 2 * kLatentQueries);
  }
};

// Named barriers; 0 is the block's.
enum : int { kTopsBarrier = 1, kOddBarrier, kEvenBarrier, kBothBarrier, kGroupBarrier };

// The order in which a group scores the columns of its tile: those first that are free first.
template <int kSide>
__device__ __forceinline__ constexpr int column_at(int i) {
  return kSide == 0 || i == kRotary ? i : (i + 4) % 8;
}

// Parts of a unit of this row. plan[0]: tokens of a part, 0: units are whole.
__device__ inline int latent_parts(const AttentionArgs& a, int row) {
  const int each = a.plan[0];
  return each == 0 ? 1 : max(1, (a.context_len[row] + each - 1) / each);
}

// By a whole warp. Items of a row: by tokens, part and heads, the last running fastest, so that neighbours read the
// same keys.
__device__ inline LatentItem latent_item(const AttentionArgs& a, int item) {
  const int each = a.plan[0];
  LatentItem x;
  AttentionUnit& u = x.u;
  u.row = row_by_warp(a.plan + 2, a.rows, item);
  const int start = a.row_start[u.row], n = a.row_start[u.row + 1] - start;
  u.context = a.context_len[u.row], u.causal = true, u.kv_head = 0;
  const int parts = latent_parts(a, u.row);
  int index = item - a.plan[2 + u.row];
  const int chunk = index % a.chunks;
  index /= a.chunks;
  x.part = index % parts;
  const int block = index / parts;
  x.first = item - x.part * a.chunks;
  u.segment = x.part, u.segments = parts;
  u.head0 = chunk * a.chunk_heads, u.heads = min(a.chunk_heads, a.heads - u.head0);
  u.token0 = start + block * a.unit_tokens, u.tokens = min(a.unit_tokens, start + n - u.token0);
  u.position0 = u.context - n + block * a.unit_tokens;
  const int most = max(u.most(), 0);
  x.parts = each == 0 ? 1 : max(1, (most + each - 1) / each);
  x.begin = x.part * each, x.end = each == 0 ? most : min(most, x.begin + each);
  return x;
}

// A column of a tile. With two blocks in a cluster each loads half of it, for both.
template <int kClusterSize>
__device__ __forceinline__ void load_column(const LatentMaps& maps, char* to, uint64_t* full, int column, int row,
                                            int block) {
  barrier_expect(full, kColumnBytes);
  if constexpr (kClusterSize == 1) {
    load_box(to, &maps.pages, full, column * 64, row, block, kEvictNormal);
  } else {
    const int rows = kLatentKeys / kClusterSize, first = cluster_rank() * rows;
    load_box_all(to + first * 128, &maps.pages, full, column * 64, row + first, block, (1 << kClusterSize) - 1,
                 kEvictFirst);
  }
}
// By one thread of a group: its columns of a tile may be overwritten, in every block of the cluster.
template <int kClusterSize>
__device__ __forceinline__ void free_columns(uint64_t* free) {
#pragma unroll
  for (int rank = 0; rank < kClusterSize; ++rank) {
    if constexpr (kClusterSize == 1) {
      barrier_arrive(free);
    } else {
      barrier_arrive_at(free, rank);
    }
  }
}

// A producer warp: side 0 loads queries and even tiles, side 1 odd ones. It finds its first item before the wait: plan
// and tables are there before anything behind plan_kernel starts, as decode_early has it. Queries and keys are not.
template <int kClusterSize, int kSide>
__device__ void latent_producer(const AttentionArgs& a, const LatentMaps& maps, const LatentShared& sh) {
  const bool first = (threadIdx.x & 31) == 0;
  const int items = a.plan[1];
  uint32_t q_phase = 0, phase = 0;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const LatentItem x = latent_item(a, item);
    if (x.part >= x.parts) continue;
    const int tile0 = x.begin / kLatentKeys, tile1 = (x.end + kLatentKeys - 1) / kLatentKeys;
    const auto block_of = [&](int t) {
      return t < tile1 ? a.table[x.u.row * a.table_stride + t * kLatentKeys / a.block_size] : 0;
    };
    int blocks = block_of(tile0 + kSide + 2 * static_cast<int>(threadIdx.x & 31));
    wait_for_previous();
    if (kSide == 0 && first) {
      barrier_wait(sh.q_free, q_phase ^ 1);
      *sh.item = x;
      barrier_expect(sh.q_full, static_cast<uint32_t>(kColumns * 128 * a.chunk_heads * a.unit_tokens));
      for (int c = 0; c < kColumns; ++c) {
        load_box(sh.q + c * kColumnBytes, &maps.q, sh.q_full, c * 64, x.u.head0, x.u.token0, kEvictFirst);
      }
    }
    q_phase ^= 1;
    for (int t = tile0 + kSide; t < tile1; t += 2) {
      const int turn = (t - tile0) / 2;
      if (turn % 32 == 0 && turn > 0) blocks = block_of(t + 2 * static_cast<int>(threadIdx.x & 31));
      const int block = __shfl_sync(0xffffffffu, blocks, turn % 32), row = t * kLatentKeys % a.block_size;
      if (first) {
        for (int i = 0; i < kColumns; ++i) {
          const int c = column_at<kSide>(i);
          if (i == 0 || i == 4) barrier_wait(&sh.free[kSide][c / 4], phase ^ 1);
          load_column<kClusterSize>(maps, sh.tile[kSide] + c * kColumnBytes, &sh.full[kSide][c], c, row, block);
        }
      }
      phase ^= 1;
    }
  }
  if (kSide == 0 && first) {
    barrier_wait(sh.q_free, q_phase ^ 1);
    sh.item->part = -1;
    barrier_arrive(sh.q_full);
  }
}

// What a thread of a group keeps: 16 x 256 results of a warp, and its two queries' tops (of unscaled scores) and sums.
struct LatentState {
  float o[128];
  float top[2], sum[2];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 128; ++i) o[i] = 0.0f;
#pragma unroll
    for (int r = 0; r < 2; ++r) top[r] = -INFINITY, sum[r] = 0.0f;
  }
  __device__ __forceinline__ void scale(const float (&by)[2]) {
    if (!__any_sync(0xffffffffu, by[0] != 1.0f || by[1] != 1.0f)) return;  // most tiles raise no top of a warp's
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      o[4 * j] *= by[0], o[4 * j + 1] *= by[0];
      o[4 * j + 2] *= by[1], o[4 * j + 3] *= by[1];
    }
  }
};

// s = q k^T of a group's own tile, columns as they arrive.
template <int kSide>
__device__ __forceinline__ void latent_score(float (&s)[32], const LatentShared& sh, uint32_t phase) {
  const uint64_t q = tile_descriptor(shared_address(sh.q)), k = tile_descriptor(shared_address(sh.tile[kSide]));
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int c = column_at<kSide>(i);
    barrier_wait(&sh.full[kSide][c], phase);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int at = c * (kColumnBytes >> 4) + d * 2;
      Wgmma<64>::run(s, q + at, k + at, i > 0 || d > 0);
    }
  }
  wgmma_commit();
}

// What older sums are scaled by when the top rises: exactly one where it does not.
__device__ __forceinline__ float latent_factor(float old, float top, float scale) {
  return top == old ? 1.0f : power2((old - top) * scale);
}

// A query's top rises only where a weight would pass 2^8: until then weights are taken below the old one, whose results
// need not be scaled. Sums of weights have room for that, and bfloat16 is as exact there. Each query decides for
// itself.
__device__ __forceinline__ float latent_top(float old, float most, float scale) {
  return (most - old) * scale <= 8.0f ? old : fmaxf(old, most);
}

// The tops of a tile's scores, beyond which nothing is visible to a query.
__device__ __forceinline__ void latent_tops(float (&s)[32], const int (&visible)[2], int j0, bool masked,
                                            float (&top)[2]) {
  const int column = (threadIdx.x & 3) * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (masked) {
      const int left = visible[r] - j0 - column;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (8 * j >= left) s[4 * j + 2 * r] = -INFINITY;
        if (8 * j + 1 >= left) s[4 * j + 2 * r + 1] = -INFINITY;
      }
    }
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int j = 0; j < 8; ++j) most[j % 2] = fmaxf(most[j % 2], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    float m = fmaxf(most[0], most[1]);
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
    top[r] = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
  }
}

// Scores become weights below `top`; their sums.
__device__ __forceinline__ void latent_weigh(float (&s)[32], const float (&top)[2], float scale, float (&sum)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float base = top[r] == -INFINITY ? 0.0f : top[r] * scale;
    float sums[2] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float& x = s[4 * j + 2 * r];
      float& y = s[4 * j + 2 * r + 1];
      x = power2(__fmaf_rn(x, scale, -base)), y = power2(__fmaf_rn(y, scale, -base));
      sums[j % 2] += x + y;
    }
    sum[r] = sums[0] + sums[1];
  }
}

// Weights as the left operand of a product: in registers, or for the other group in the rotary part of the tile.
__device__ __forceinline__ void latent_pack(const float (&s)[32], uint32_t (&p)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) p[i] = pack2(s[2 * i], s[2 * i + 1]);
}
__device__ __forceinline__ void latent_hand_over(const uint32_t (&p)[16], char* rotary) {
  const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int chunk = (i / 2) ^ (row & 7);  // rows r and r + 8 alike
    *reinterpret_cast<uint32_t*>(rotary + (row + i % 2 * 8) * 128 + chunk * 16 + lane % 4 * 4) = p[i];
  }
  shared_to_engine();
}

template <int kSide>
__device__ __forceinline__ uint64_t latent_values(const char* tile) {
  return column_descriptor(shared_address(tile + kSide * 4 * kColumnBytes), kColumnBytes);
}
template <int kSide>
__device__ __forceinline__ void latent_mix_own(LatentState& st, const uint32_t (&p)[16], const char* tile) {
  const uint64_t v = latent_values<kSide>(tile);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    WgmmaRegisters<256>::run(st.o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], v + i * (16 * 128 >> 4));
  }
  wgmma_commit();
}
template <int kSide>
__device__ __forceinline__ void latent_mix_other(LatentState& st, const char* tile) {
  const uint64_t v = latent_values<kSide>(tile);
  const uint64_t p = tile_descriptor(shared_address(tile + kRotary * kColumnBytes));
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) WgmmaColumns256::run(st.o, p + i * 2, v + i * (16 * 128 >> 4));
  wgmma_commit();
}

// What stands behind the context in its last block may be anything, NaN too: times a weight of zero it must be zero.
// By a group, in its own columns.
template <int kSide>
__device__ void latent_clear_tail(char* tile, int rows) {
  for (int i = threadIdx.x % 128; i < (kLatentKeys - rows) * 32; i += 128) {
    const int row = rows + i / 32, chunk = i % 32;
    *reinterpret_cast<uint4*>(tile + (kSide * 4 + chunk / 8) * kColumnBytes + row * 128 + chunk % 8 * 16) =
        uint4{0, 0, 0, 0};
  }
  shared_to_engine();
  group_sync(kGroupBarrier + kSide, 128);
}

template <int kSide>
__device__ __forceinline__ void latent_wait_half(const LatentShared& sh, int tile, uint32_t phase) {
#pragma unroll
  for (int c = 0; c < 4; ++c) barrier_wait(&sh.full[tile][kSide * 4 + c], phase);
}

}  // namespace
}  // namespace tern::cuda
