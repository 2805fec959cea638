// What the blocks of a chain do (chain.h). A block takes equal shares of every weight's rows, in units of 16. One
// thread reads them ahead through a ring in shared memory, eight warps multiply: each takes its values of k of what is
// in the ring, for up to kGroup units at a time, and their sums meet in shared memory at the end. x comes from the
// second-level cache straight into registers, a piece of k ahead.
#pragma once

#include "cuda/fusion/chain.h"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"

namespace tern::cuda {
namespace {

constexpr int kChainWarps = 8, kChainThreads = 32 * kChainWarps + 32, kChainGroup = 32 * kChainWarps;

struct ChainArgs {
  CUtensorMap maps[kChainSteps];  // of the steps' weights
  ChainStep steps[kChainSteps];
  int count;
  uint32_t* counters;  // kChainSteps and one more, zero between launches
};

constexpr int kBoxBytes = 256 * 16 * 2;  // what one copy brings: 256 values of a unit's rows

// Of shared memory: values of k in a slot of the ring, slots in it and on their way at a time: what the memory needs to
// stay busy. With the whole ring on its way everything else, the waits of the blocks for each other before all, would
// stand behind 25 MB in the queues of the memory.
constexpr int kChunk = 64 * kChainWarps, kSlotBytes = kChunk / 256 * kBoxBytes;
constexpr int kSlots = 11, kAhead = 4;
constexpr int kGroup = 12;  // units whose sums a warp keeps

struct ChainShared {
  alignas(128) char slots[kSlots][kSlotBytes];
  float2 join[kChainWarps][kGroup][8];  // of rows r and r + 8 of a unit
  alignas(16) bf normed[kChainNormed];
  float scratch[32];
  uint64_t full[kSlots], empty[kSlots];
};
static_assert(sizeof(ChainShared) <= 227 * 1024);

// Where a thread is in the ring.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};

// A block's share of a product: units [first, last) of 16 rows.
struct ChainShare {
  int first, last;
};

__device__ __forceinline__ ChainShare share_of(const ChainProduct& p) {
  const int units = p.n / 16, at = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  return {units * at / blocks, units * (at + 1) / blocks};
}

// Fills the ring through all steps, by one thread. It reads weights only, which no step writes.
__device__ void fill_ring(const ChainArgs& a, ChainShared& s) {
  for (int i = 0; i < a.count; ++i) {
    if (a.steps[i].product.n > 0) hopper::prefetch_map(&a.maps[i]);
  }
  RingPlace place, landed;
  int on_way = 0;
  for (int i = 0; i < a.count; ++i) {
    const ChainProduct& p = a.steps[i].product;
    if (p.n == 0) continue;
    const ChainShare share = share_of(p);
    for (int begin = share.first; begin < share.last; begin += kGroup) {
      const int end = min(begin + kGroup, share.last);
      for (int k = 0; k < p.k; k += kChunk) {
        const int boxes = min(kChunk, p.k - k + 255) / 256;
        for (int unit = begin; unit < end; ++unit) {
          if (on_way == kAhead) {
            hopper::barrier_wait(&s.full[landed.slot], landed.parity);
            landed.next(), --on_way;
          }
          ++on_way;
          hopper::barrier_wait(&s.empty[place.slot], place.parity ^ 1);
          hopper::barrier_expect(&s.full[place.slot], static_cast<uint32_t>(boxes * kBoxBytes));
          for (int box = 0; box < boxes; ++box) {
            hopper::load_box(s.slots[place.slot] + box * kBoxBytes, &a.maps[i], &s.full[place.slot], k + 256 * box, 0,
                             0, unit, hopper::kEvictFirst);
          }
          place.next();
        }
      }
    }
  }
}

// What the steps will read now and then, towards the second-level cache while nothing waits for it: it would be missed
// there behind all that the ring asks for. A line per thread of the whole launch.
__device__ __forceinline__ void prefetch_chain(const ChainArgs& a) {
  const int thread = static_cast<int>(blockIdx.x) * kChainGroup + static_cast<int>(threadIdx.x);
  const auto fetch = [](const void* p) { asm volatile("prefetch.global.L2 [%0];\n" ::"l"(p)); };
  if (thread == 0) fetch(a.counters);
  for (int i = 0; i < a.count; ++i) {
    const ChainNorm& n = a.steps[i].norm;
    if (thread * 128 < n.width * (n.weight_bf16 ? 2 : 4)) fetch(static_cast<const char*>(n.weight) + thread * 128);
  }
}

// What another block wrote: never from the first-level cache.
__device__ __forceinline__ Vec8 load_sums(const float* p) {
  const float4 a = __ldcg(reinterpret_cast<const float4*>(p)), b = __ldcg(reinterpret_cast<const float4*>(p) + 1);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// Sum over the threads that multiply, in a fixed order.
__device__ __forceinline__ float cluster_sum(float v, float* scratch) {
  v = warp_sum(v);
  hopper::group_sync(1, kChainGroup);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = v;
  hopper::group_sync(1, kChainGroup);
  const int lane = threadIdx.x & 31;
  return warp_sum(lane < kChainWarps ? scratch[lane] : 0.0f);
}

// A norm, eight values of a thread at a time. `keeps`: this block leaves sum and y in memory; `normed`: y for itself,
// or null. All loads come before the first store: they are far away.
__device__ __forceinline__ void norm_row(const ChainNorm& n, bool keeps, bf* normed, float* scratch) {
  constexpr int kPer = kChainNormed / 8 / kChainGroup;
  const int count = n.width / 8;
  Vec8 v[kPer] = {}, r[kPer] = {};
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int i = threadIdx.x + p * kChainGroup;
    if (i >= count) continue;
    v[p] = load_sums(n.x + 8 * i);
    if (n.residual != nullptr) r[p] = load_sums(n.residual + 8 * i);
  }
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
#pragma unroll
    for (int j = 0; j < 8; ++j) v[p].v[j] += r[p].v[j], squares += v[p].v[j] * v[p].v[j];
    const int i = threadIdx.x + p * kChainGroup;  // from here on r is the weight
    if (i < count) {
      r[p] = n.weight_bf16 ? load8(static_cast<const bf*>(n.weight) + 8 * i)
                           : load8(static_cast<const float*>(n.weight) + 8 * i);
    }
  }
  const float scale = 1.0f / sqrtf(cluster_sum(squares, scratch) / static_cast<float>(n.width) + n.eps);
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int i = threadIdx.x + p * kChainGroup;
    if (i >= count) continue;
    if (keeps && n.residual != nullptr) store8(n.sum + 8 * i, v[p]);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[p].v[j] = v[p].v[j] * scale * r[p].v[j];
    if (keeps) store8(static_cast<bf*>(n.y) + 8 * i, v[p]);
    if (normed != nullptr) store8(normed + 8 * i, v[p]);
  }
}

// By every block for itself, or by the first one for all.
__device__ void norm_step(const ChainNorm& n, bool everywhere, ChainShared& s) {
  if (!everywhere && blockIdx.x > 0) return;
  norm_row(n, blockIdx.x == 0, everywhere ? s.normed : nullptr, s.scratch);
  if (everywhere) hopper::group_sync(1, kChainGroup);
}

}  // namespace
}  // namespace tern::cuda
