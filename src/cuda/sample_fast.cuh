// The draw of a row without top-k and min-p in four passes over its logits: the largest, masses by distance from it,
// the few entries around the end of the nucleus, the walk. Masses are the same integers as in sample_row.cuh, so the
// token is the same; only how the end of the nucleus is found differs.
#pragma once

#include "cuda/sample_row.cuh"

namespace tern::cuda {

inline constexpr int kListed = 2048;    // entries of the bin in which the nucleus ends
inline constexpr int kWalkChunk = 128;  // entries

struct FastShared {
  uint32_t low[kBins], high[kBins];  // 64-bit masses with the carry by hand: there is no such atomic in shared memory
  uint2 list[kListed];               // offset, weight
  uint32_t listed;
  __device__ unsigned long long bin(int i) const { return (static_cast<unsigned long long>(high[i]) << 32) | low[i]; }
};

// f(i, x[i]) for all i; each thread in ascending order, 16 bytes at a time.
template <class F>
__device__ __forceinline__ void for_row(const float* x, int n, const F& f) {
  const int head = min(n, static_cast<int>((16 - reinterpret_cast<uintptr_t>(x) % 16) / 4 % 4));
  const int fours = (n - head) / 4, t = threadIdx.x;
  if (t < head) f(t, x[t]);
  const auto* v = reinterpret_cast<const float4*>(x + head);
  const auto each = [&](int i, const float4& a) {
    f(head + 4 * i, a.x), f(head + 4 * i + 1, a.y), f(head + 4 * i + 2, a.z), f(head + 4 * i + 3, a.w);
  };
  int i = t;
  for (; i + 3 * kRowThreads < fours; i += 4 * kRowThreads) {
    float4 a[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) a[j] = v[i + j * kRowThreads];
#pragma unroll
    for (int j = 0; j < 4; ++j) each(i + j * kRowThreads, a[j]);
  }
  for (; i < fours; i += kRowThreads) each(i, v[i]);
  if (head + 4 * fours + t < n) f(head + 4 * fours + t, x[head + 4 * fours + t]);
}

struct RowRange {
  RowMax top;
  float least;  // smallest finite value
};

__device__ inline RowRange row_range(const float* x, int n, RowShared& sh) {
  float most = -INFINITY, least = INFINITY;
  int index = 0x7fffffff;
  bool nan = false;
  for_row(x, n, [&](int i, float v) {
    nan |= v != v;
    if (v > most) most = v, index = i;
    least = fminf(least, v > -INFINITY ? v : INFINITY);
  });
  unsigned long long best =
      index == 0x7fffffff ? 0
                          : (static_cast<unsigned long long>(ordered_bits(most)) << 32) | ~static_cast<uint32_t>(index);
  best = warp_largest64(best);
  least = -warp_max(-least);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    sh.sums[threadIdx.x / 32] = best;
    sh.bins[threadIdx.x / 32] = __float_as_uint(least);
  }
  nan = __syncthreads_or(nan);
  best = warp_largest64(sh.sums[threadIdx.x % 32]);
  least = -warp_max(-__uint_as_float(static_cast<uint32_t>(sh.bins[threadIdx.x % 32])));
  if (best == 0) return {{-INFINITY, 0x7fffffff, nan}, least};
  const int at = static_cast<int>(~static_cast<uint32_t>(best));
  return {{x[at], at, nan}, least};
}

// Which bin a value belongs to; never decreases as values do.
struct Binning {
  float top, per_bin;
  __device__ __forceinline__ int operator()(float v) const {
    constexpr float kWhole = 8388608.0f;  // from here on floats are integers
    const float d = fminf(__fmul_rn(__fsub_rn(top, v), per_bin), static_cast<float>(kBins - 1));
    return static_cast<int>(__float_as_uint(__fadd_rn(d, kWhole)) - __float_as_uint(kWhole));
  }
};

// Bins reach to the lowest value, or to where no weight is left.
__device__ inline Binning binning(const RowRange& range, float scale) {
  const float width = fminf(range.top.max - range.least, 21.0f / scale);
  return {range.top.max, width > 0.0f ? static_cast<float>(kBins) / width : 0.0f};
}

// Masses of the bins, in f.
__device__ inline void fill_bins(const float* x, int n, float scale, float top, const Binning& bin, FastShared& f) {
  __syncthreads();
  for (int b = threadIdx.x; b < kBins; b += kRowThreads) f.low[b] = f.high[b] = 0;
  if (threadIdx.x == 0) f.listed = 0;
  __syncthreads();
  for_row(x, n, [&](int, float v) {
    const uint32_t w = weight_of(v, scale, top);
    if (w == 0) return;
    const int b = bin(v);
    if (atomicAdd(&f.low[b], w) > 0xffffffffu - w) atomicAdd(&f.high[b], 1u);
  });
  __syncthreads();
}

// Sum of sh.bins.
__device__ inline unsigned long long bins_mass(RowShared& sh) {
  return row_sum(sh.bins[2 * threadIdx.x] + sh.bins[2 * threadIdx.x + 1], sh);
}

struct Nucleus {
  bool found;               // false: too many entries in one bin, nothing below holds
  uint32_t last;            // offset of its last entries
  unsigned long long mass;  // what stays
};

// Entries of a bin, in any order: list[count++], as far as there is room.
__device__ inline void list_bin(const float* x, int n, float scale, float top, uint32_t base, const Binning& bin,
                                int wanted, uint2* list, uint32_t* count) {
  for_row(x, n, [&](int, float v) {
    if (bin(v) != wanted) return;
    const uint32_t w = weight_of(v, scale, top);
    if (w == 0) return;
    const uint32_t at = atomicAdd(count, 1u);
    if (at < kListed) list[at] = make_uint2(base - ordered_bits(v), w);
  });
}

// Where the nucleus of mass `limit` ends, given the listed entries of its last bin and the mass `before` them: entries
// stay while the mass strictly above them is below the limit.
__device__ inline Nucleus nucleus_end(int count, unsigned long long before, unsigned long long limit, FastShared& f,
                                      RowShared& sh) {
  if (count > kListed) return {false, 0, 0};
  __syncthreads();
  if (threadIdx.x == 0) sh.word = 0;
  __syncthreads();
  // Two entries per thread at most: the mass above each, and whether it stays.
  unsigned long long upto[kListed / kRowThreads] = {};
  for (int c = threadIdx.x, k = 0; c < count; c += kRowThreads, ++k) {
    const uint32_t own = f.list[c].x;
    unsigned long long above = before;
    upto[k] = before;
    for (int j = 0; j < count; ++j) {
      const uint2 e = f.list[j];
      if (e.x < own) above += e.y;
      if (e.x <= own) upto[k] += e.y;
    }
    if (above < limit) atomicMax(&sh.word, own);
  }
  __syncthreads();
  for (int c = threadIdx.x, k = 0; c < count; c += kRowThreads, ++k) {
    if (f.list[c].x == sh.word) sh.value = upto[k];  // the same from all of them
  }
  __syncthreads();
  return {true, sh.word, sh.value};
}

// The nucleus from the masses in sh.bins; f.listed is 0.
__device__ inline Nucleus find_nucleus(const float* x, int n, float scale, float top, uint32_t base, const Binning& bin,
                                       unsigned long long limit, FastShared& f, RowShared& sh) {
  find_bin(limit, sh);
  const int wanted = static_cast<int>(sh.word);
  const unsigned long long before = sh.value;
  list_bin(x, n, scale, top, base, bin, wanted, f.list, &f.listed);
  __syncthreads();
  return nucleus_end(static_cast<int>(f.listed), before, limit, f, sh);
}

// Weights of the entries that are not below `least`.
struct NucleusWeight {
  float scale, top, least;
  // last: offset of the last entries from `base`, the bits of the top; 0xffffffff: all of them.
  __device__ NucleusWeight(float s, float t, uint32_t base, uint32_t last) : scale(s), top(t) {
    least = last > base ? -INFINITY : from_ordered(base - last);
  }
  __device__ __forceinline__ uint32_t operator()(float v) const { return v < least ? 0u : weight_of(v, scale, top); }
  // Of four entries. Few are in the nucleus as a rule: each lane computes its own, one after the other.
  __device__ __forceinline__ unsigned long long four(const float (&v)[4]) const {
    unsigned left = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) left |= v[j] < least ? 0u : 1u << j;
    unsigned long long sum = 0;
    for (; left != 0; left &= left - 1) {
      const float low = (left & 1) != 0 ? v[0] : v[1], high = (left & 4) != 0 ? v[2] : v[3];
      sum += weight_of((left & 3) != 0 ? low : high, scale, top);
    }
    return sum;
  }
};

// How a row is cut for the walk: at most kBins chunks.
struct Chunks {
  int size, count;
  __device__ explicit Chunks(int n) {
    size = (n + kWalkChunk * kBins - 1) / (kWalkChunk * kBins) * kWalkChunk;
    count = (n + size - 1) / size;
  }
};

// sums[c]: of weight(x[i]) over chunk c, for chunks [begin, end); a warp each.
template <class Weight>
__device__ void sum_chunks(const float* x, int n, const Chunks& chunks, int begin, int end, unsigned long long* sums,
                           const Weight& weight) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 2
  for (int c = begin + warp; c < end; c += kRowWarps) {
    unsigned long long sum = 0;
    for (int i0 = c * chunks.size; i0 < min(n, (c + 1) * chunks.size); i0 += kWalkChunk) {
      float v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = i0 + 32 * j + lane < n ? x[i0 + 32 * j + lane] : -INFINITY;
      sum += weight.four(v);
    }
    // In two parts: warps add 32-bit words at once.
    const auto low = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(sum & 0xffffffu)));
    const auto high = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(sum >> 24)));
    if (lane == 0) sums[c] = (static_cast<unsigned long long>(high) << 24) + low;
  }
}

// The first i at which the running sum of weight(x[i]) passes `target`; sh.bins holds the sums of chunks, then zeros.
template <class Weight>
__device__ int walk_chunks(const float* x, int n, const Chunks& chunks, unsigned long long target, RowShared& sh,
                           const Weight& weight) {
  find_bin(target + 1, sh);  // the last chunk that has mass and starts at or below the target
  const int chunk = static_cast<int>(sh.word);
  const unsigned long long run = sh.value;
  __syncthreads();
  if (threadIdx.x == 0) sh.word = static_cast<unsigned>(n - 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    walk_piece(chunk * chunks.size, min(n, (chunk + 1) * chunks.size), run, target, sh,
               [&](int i) { return static_cast<unsigned long long>(weight(x[i])); });
  }
  __syncthreads();
  return static_cast<int>(sh.word);
}

}  // namespace tern::cuda
