// The third pass of a draw (sample_fast.cuh): masses by place, and where the nucleus ends.
#pragma once

#include "cuda/sampling/sample_fast.cuh"

namespace tern::cuda {

// Adds the weights of a lane's values from `high` on to `sum`; says which these are, the first in the highest bit.
template <int kQuads>
__device__ __forceinline__ unsigned add_all(const float4 (&v)[kQuads], float scale, float top, float high,
                                            unsigned long long& sum) {
  constexpr int kTogether = 3;  // weights whose sum is below 2^32
  unsigned above = 0;
  uint32_t some = 0;
#pragma unroll
  for (int i = 0; i < 4 * kQuads; ++i) {
    const float4& q = v[i / 4];
    const float x = i % 4 == 0 ? q.x : i % 4 == 1 ? q.y : i % 4 == 2 ? q.z : q.w;
    const uint32_t w = weight_at(fmaxf(__fsub_rn(__fmul_rn(x, scale), top), -kDeep));
    if (x >= high) some += w, above |= 0x80000000u >> i;
    if (i % kTogether == kTogether - 1 || i == 4 * kQuads - 1) sum += some, some = 0;
  }
  return above;
}

// The third pass: chunk masses of the entries from `high` on, the list of those from `low` on below it. kQuads per
// lane and chunk.
template <int kQuads, int kClusterSize>
__device__ void sum_chunks(const Piece& p, float scale, float top, float low, float high, uint32_t base,
                           DrawShared<kClusterSize>& sh) {
  // Signs of differences tell what is below: of both zeros to -0 they have none, -0 minus +0 has one.
  low = low == 0.0f ? -0.0f : low, high = high == 0.0f ? -0.0f : high;
  constexpr int kValues = 4 * kQuads, kDense = kValues / 2;  // from so many on a lane does not look for them one by one
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Bins are not in use.
  constexpr int kQueue = sizeof(sh.row.bins) / sizeof(uint16_t) / kRowWarps;
  static_assert(32 * kDense <= kQueue);
  uint16_t* queue = reinterpret_cast<uint16_t*>(sh.row.bins) + warp * kQueue;
  const unsigned below_lane = (1u << lane) - 1;
  const bool weightless = low < high && weight_of(low, scale, top) == 0;  // what has no weight is not listed
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
    left = ~left << (32 - kValues);
    unsigned long long sum = 0;
    const int first = c * 32 * kValues + 4 * lane;  // of the lane's values, in the piece
    const auto place = [&](unsigned i) { return static_cast<uint32_t>(first) + (i & 12u) * 32u + (i & 3u); };
    if (!weightless && __ballot_sync(0xffffffffu, __popc(left) > kDense) != 0) {
      left &= ~add_all(v, scale, top, high, sum);
      uint32_t at = left != 0 ? atomicAdd(&sh.listed, static_cast<uint32_t>(__popc(left))) : 0;
      for (; left != 0; ++at) {
        const auto i = static_cast<unsigned>(__clz(static_cast<int>(left)));
        sh.list.place[at] = place(i);
        left ^= 0x80000000u >> i;
      }
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
          sh.list.place[atomicAdd(&sh.listed, 1u)] = static_cast<uint32_t>(c * 32 * kValues) + queue[k];
        }
      }
      __syncwarp();
    }
    // In two parts: warps add 32-bit words at once.
    const auto a = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(sum & 0xffffffu)));
    const auto b = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(sum >> 24)));
    if (lane == 0) sh.chunks[c] = (static_cast<unsigned long long>(b) << 24) + a;
  }
  __syncthreads();
  const float* values = reinterpret_cast<const float*>(p.x) + 4 * p.begin;
  for (int i = threadIdx.x; i < static_cast<int>(sh.listed); i += kRowThreads) {
    const float x = values[sh.list.place[i]];
    sh.list.entry[i] = static_cast<unsigned long long>(base - ordered_bits(x)) << 32 | weight_of(x, scale, top);
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
