// What the blocks of a tape do (tape.h). A block takes equal shares of every weight's rows, in units of 16. One thread
// reads them ahead through a ring in shared memory, eight warps multiply: each takes its values of k of what is in the
// ring, for up to kGroup units at a time, and their sums meet in shared memory at the end. x comes from the
// second-level cache straight into registers, a piece of k ahead.
#pragma once

#include "cuda/hopper.cuh"
#include "cuda/launch.cuh"
#include "cuda/mma.cuh"
#include "cuda/tape.h"

namespace tern::cuda {
namespace {

constexpr int kTapeWarps = 8, kTapeThreads = 32 * kTapeWarps + 32, kTapeTeam = 32 * kTapeWarps;

struct TapeArgs {
  CUtensorMap maps[kTapeSteps];  // of the steps' weights
  TapeStep steps[kTapeSteps];
  int count, rows;
  uint32_t* counters;  // kTapeSteps and one more, zero between launches
};

constexpr int kBoxBytes = 256 * 16 * 2;  // what one copy brings: 256 values of a unit's rows

// Of shared memory: values of k in a slot of the ring, slots in it and on their way at a time: what the memory needs to
// stay busy. With the whole ring on its way everything else, the waits of the blocks for each other before all, would
// stand behind 25 MB in the queues of the memory.
constexpr int kChunk = 64 * kTapeWarps, kSlotBytes = kChunk / 256 * kBoxBytes;
constexpr int kSlots = 11, kAhead = 4;
constexpr int kGroup = 12, kJoin = 8;  // units whose sums a warp keeps; that are joined at once
constexpr int kNormedBytes = kTapeNormed * 2 + kTapeRows * 64;

struct TapeShared {
  alignas(128) char slots[kSlots][kSlotBytes];
  float2 join[kTapeWarps][kJoin][2][32];
  char normed[kNormedBytes];
  float scratch[32];
  uint64_t full[kSlots], empty[kSlots];
};
static_assert(sizeof(TapeShared) <= 227 * 1024);

// Where a thread is in the ring.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};

// A block's share of a product: units [first, last) of 16 rows, values [k_begin, k_end) of k, part `part` of out.
struct TapeShare {
  int first, last, k_begin, k_end, part;
};

__device__ __forceinline__ TapeShare share_of(const TapeProduct& p) {
  const int parts = p.parts, part = static_cast<int>(blockIdx.x) % parts;
  const int at = static_cast<int>(blockIdx.x) / parts;
  const int blocks = (static_cast<int>(gridDim.x) - part + parts - 1) / parts;
  const int units = p.n / 16, chunks = (p.k + kChunk - 1) / kChunk;
  return {units * at / blocks, units * (at + 1) / blocks, chunks * part / parts * kChunk,
          min(p.k, chunks * (part + 1) / parts * kChunk), part};
}

// Fills the ring through all steps, by one thread. It reads weights only, which no step writes.
__device__ void feed_tape(const TapeArgs& a, TapeShared& s) {
  for (int i = 0; i < a.count; ++i) {
    if (a.steps[i].product.n > 0) hopper::prefetch_map(&a.maps[i]);
  }
  RingPlace place, landed;
  int on_way = 0;
  for (int i = 0; i < a.count; ++i) {
    const TapeProduct& p = a.steps[i].product;
    if (p.n == 0) continue;
    const TapeShare share = share_of(p);
    for (int begin = share.first; begin < share.last; begin += kGroup) {
      const int end = min(begin + kGroup, share.last);
      for (int k = share.k_begin; k < share.k_end; k += kChunk) {
        const int boxes = min(kChunk, share.k_end - k + 255) / 256;
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
__device__ __forceinline__ void prefetch_tape(const TapeArgs& a) {
  const int thread = static_cast<int>(blockIdx.x) * kTapeTeam + static_cast<int>(threadIdx.x);
  const auto fetch = [](const void* p) { asm volatile("prefetch.global.L2 [%0];\n" ::"l"(p)); };
  if (thread == 0) fetch(a.counters);
  for (int i = 0; i < a.count; ++i) {
    const TapeNorm& n = a.steps[i].norm;
    if (thread * 128 < n.width * (n.weight_bf16 ? 2 : 4)) fetch(static_cast<const char*>(n.weight) + thread * 128);
  }
}

// What another block wrote: never from the first-level cache.
__device__ __forceinline__ Vec8 load_sums(const float* p) {
  const float4 a = __ldcg(reinterpret_cast<const float4*>(p)), b = __ldcg(reinterpret_cast<const float4*>(p) + 1);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// One row of a norm by kLanes threads, kPer times eight values each; `sum` adds over them. `keeps`: this block leaves
// sum and y in memory; `normed`: y for itself, or null. All loads come before the first store: they are far away.
template <int kLanes, int kPer, class Sum>
__device__ __forceinline__ void norm_row(const TapeNorm& n, int token, bool keeps, bf* normed, const Sum& sum) {
  const int lane = threadIdx.x % kLanes, count = n.width / 8;
  Vec8 v[kPer] = {}, r[kPer] = {};
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int i = lane + p * kLanes;
    if (i >= count) continue;
    v[p] = load_sums(n.x + token * n.x_row + 8 * i);
    if (n.residual != nullptr) r[p] = load_sums(n.residual + token * n.residual_row + 8 * i);
  }
  for (int part = 1; part < n.parts; ++part) {
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const int i = lane + p * kLanes;
      if (i >= count) continue;
      const Vec8 x = load_sums(n.x + part * n.part_stride + token * n.x_row + 8 * i);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[p].v[j] += x.v[j];
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
#pragma unroll
    for (int j = 0; j < 8; ++j) v[p].v[j] += r[p].v[j], squares += v[p].v[j] * v[p].v[j];
    const int i = lane + p * kLanes;  // from here on r is the weight
    if (i < count) {
      r[p] = n.weight_bf16 ? load8(static_cast<const bf*>(n.weight) + 8 * i)
                           : load8(static_cast<const float*>(n.weight) + 8 * i);
    }
  }
  const float scale = 1.0f / sqrtf(sum(squares) / static_cast<float>(n.width) + n.eps);
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int i = lane + p * kLanes;
    if (i >= count) continue;
    if (keeps && n.residual != nullptr) store8(n.sum + token * n.sum_row + 8 * i, v[p]);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[p].v[j] = v[p].v[j] * scale * r[p].v[j];
    if (keeps) store8(static_cast<bf*>(n.y) + token * n.y_row + 8 * i, v[p]);
    if (normed != nullptr) store8(normed + 8 * i, v[p]);
  }
}

// Sum over the threads that multiply, in a fixed order.
__device__ __forceinline__ float team_sum(float v, float* scratch) {
  v = warp_sum(v);
  hopper::group_sync(1, kTapeTeam);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = v;
  hopper::group_sync(1, kTapeTeam);
  const int lane = threadIdx.x & 31;
  return warp_sum(lane < kTapeWarps ? scratch[lane] : 0.0f);
}

__device__ __forceinline__ void norm_by_team(const TapeNorm& n, int token, bool keeps, bf* normed, float* scratch) {
  norm_row<kTapeTeam, kTapeNormed / 8 / kTapeTeam>(n, token, keeps, normed,
                                                   [&](float v) { return team_sum(v, scratch); });
}

// All rows: by every block, or dealt out to the blocks.
__device__ void norm_step(const TapeNorm& n, int rows, bool everywhere, TapeShared& s) {
  if (!everywhere) {
    for (int t = blockIdx.x; t < rows; t += gridDim.x) norm_by_team(n, t, true, nullptr, s.scratch);
    return;
  }
  bf* normed = reinterpret_cast<bf*>(s.normed);
  if (rows == 1) {
    norm_by_team(n, 0, blockIdx.x == 0, normed, s.scratch);
  } else if (const int t = threadIdx.x / 32; t < rows) {
    norm_row<32, 4>(n, t, blockIdx.x == 0, normed + t * (n.width + 32), [](float v) { return warp_sum(v); });
  }
  hopper::group_sync(1, kTapeTeam);
}

}  // namespace
}  // namespace tern::cuda
