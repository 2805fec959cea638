// The third pass of a draw (sample_fast.cuh): masses by place, and where the nucleus ends.
#pragma once

#include "cuda/sample_fast.cuh"

namespace tern::cuda {

// The third pass: chunk masses of the entries from `high` on, the list of those from `low` on below it. kQuads per
// lane and chunk.
template <int kQuads, int kTeam>
__device__ void sum_chunks(const Piece& p, float scale, float top, float low, float high, uint32_t base,
                           DrawShared<kTeam>& sh) {
  // Signs of differences tell what is below: of both zeros to -0 they have none, -0 minus +0 has one.
  low = low == 0.0f ? -0.0f : low, high = high == 0.0f ? -0.0f : high;
  constexpr int kDense = 2 * kQuads;  // entries of a lane from which on it does not look for them one by one
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Bins are not in use.
  constexpr int kQueue = sizeof(sh.row.bins) / sizeof(uint16_t) / kRowWarps;
  static_assert(32 * kDense <= kQueue);
  uint16_t* queue = reinterpret_cast<uint16_t*>(sh.row.bins) + warp * kQueue;
  const unsigned below_lane = (1u << lane) - 1;
#pragma unroll 1
  for (int c = warp; p.begin + c * 32 * kQuads < p.end; c += kRowWarps) {
    const int quad = p.begin + c * 32 * kQuads + lane;
    float4 v[kQuads];
    p.load<kQuads, 32>(quad, v);
    // Entries to look at one by one, the first in the highest bit; a difference has its sign where there is none.
    unsigned left = 0;
    const auto mark = [&](float x) { left = left << 1 | __float_as_uint(__fsub_rn(x, low)) >> 31; };
#pragma unroll
    for (int u = 0; u < kQuads; ++u) mark(v[u].x), mark(v[u].y), mark(v[u].z), mark(v[u].w);
    left = ~left << (32 - 4 * kQuads);
    unsigned long long sum = 0;
    if (__ballot_sync(0xffffffffu, __popc(left) > kDense) != 0) {
      unsigned above = 0;
      const auto add = [&](float x) {
        const uint32_t w = weight_of(x, scale, top), below = __float_as_uint(__fsub_rn(x, high)) >> 31;
        sum += w & (below - 1);
        above = above << 1 | (below ^ 1);
      };
#pragma unroll
      for (int u = 0; u < kQuads; ++u) add(v[u].x), add(v[u].y), add(v[u].z), add(v[u].w);
      left &= ~(above << (32 - 4 * kQuads));
    }
    // The places of what is left go to a queue of the warp, so that all its lanes have one to look at.
    const float* source = reinterpret_cast<const float*>(p.from(quad - lane));
    for (;;) {
      int count = 0;
#pragma unroll 1
      for (int round = 0; round < kDense; ++round) {
        const unsigned some = __ballot_sync(0xffffffffu, left != 0);
        if (some == 0) break;
        if (left != 0) {
          const unsigned i = static_cast<unsigned>(__clz(static_cast<int>(left)));
          queue[count + __popc(some & below_lane)] = static_cast<uint16_t>((i & 12u) << 5 | (i & 3u) | 4u * lane);
          left ^= 0x80000000u >> i;
        }
        count += __popc(some);
      }
      if (count == 0) break;
      __syncwarp();
#pragma unroll 1
      for (int k = lane; k < count; k += 32) {
        const float x = source[queue[k]];
        const uint32_t w = weight_of(x, scale, top);
        if (x >= high) {
          sum += w;
        } else if (w != 0) {
          const uint32_t at = atomicAdd(&sh.listed, 1u);
          sh.list.entry[at] = static_cast<unsigned long long>(base - ordered_bits(x)) << 32 | w;
          sh.list.place[at] = static_cast<uint32_t>(c);
        }
      }
      __syncwarp();
    }
    // In two parts: warps add 32-bit words at once.
    const auto a = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(sum & 0xffffffu)));
    const auto b = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(sum >> 24)));
    if (lane == 0) sh.chunks[c] = (static_cast<unsigned long long>(b) << 24) + a;
  }
}

struct Nucleus {
  uint32_t last;            // offset of its last entries
  unsigned long long mass;  // what stays
};

// Where the nucleus of mass `limit` ends among `count` entries with offsets in [first, last], given the mass before
// them: entries stay while the mass strictly above them is below the limit.
__device__ inline Nucleus nucleus_end(const unsigned long long* entries, int count, uint32_t first, uint32_t last,
                                      unsigned long long before, unsigned long long limit, RowShared& sh,
                                      Crossing& found) {
  constexpr int kDepth = 10;
  static_assert(kRowThreads == 1 << kDepth);
  // Sums of the lower halves of weights, and of the upper ones: shared memory adds words at once, longer ones in turns.
  auto* const low = reinterpret_cast<uint32_t*>(sh.bins);
  uint32_t* const high = low + kRowThreads;
  for (;;) {
    const int shift = max(32 - kDepth - __clz(static_cast<int>(last - first)), 0);
    low[threadIdx.x] = 0, high[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kRowThreads) {
      const auto o = static_cast<uint32_t>(entries[i] >> 32), w = static_cast<uint32_t>(entries[i]);
      if (o < first || o > last) continue;
      atomicAdd(low + ((o - first) >> shift), w & 0xffffu), atomicAdd(high + ((o - first) >> shift), w >> 16);
    }
    __syncthreads();
    const Crossing c = find_crossing(
        sh, found, [&](int i) { return low[i] + (static_cast<unsigned long long>(high[i]) << 16); },
        [&](unsigned long long) { return limit - before; });
    before += c.before;
    first += static_cast<uint32_t>(c.at) << shift;
    if (shift == 0) return {first, before + c.mass};
    if (const uint32_t end = first + (1u << shift) - 1; end < last) last = end;
  }
}

}  // namespace tern::cuda
