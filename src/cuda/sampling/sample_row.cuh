// One row of logits in the hands of one block. The arithmetic is that of kernels/cpu/sample/sample_ref.cc and
// sample_row.cc, rounding by rounding, and masses are integers: the same logits give the same token as on a CPU.
// Nothing is sorted and nothing stored: weights are computed again in each pass, and what truncation leaves is three
// thresholds.
#pragma once

#include <cstdint>

#include "cuda/ptx/kernel_util.cuh"

namespace tern::cuda {

inline constexpr int kRowThreads = 1024, kRowWarps = kRowThreads / 32;
inline constexpr int kBins = 2048, kDigit = 11;

__device__ __forceinline__ uint32_t ordered_bits(float x) {
  const uint32_t u = __float_as_uint(__fadd_rn(x, 0.0f));
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

// The smallest value whose ordered bits are at least `bits`.
__device__ __forceinline__ float from_ordered(uint32_t bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}

// 2^r for |r| <= 1/2; this and exp_of() are exp_of in kernels/cpu/sample/sample_ref.cc.
__device__ __forceinline__ float power_near(float r) {
  float p = 1.3264726908e-3f;
  p = __fmaf_rn(p, r, 9.6715126604e-3f);
  p = __fmaf_rn(p, r, 5.5507337442e-2f);
  p = __fmaf_rn(p, r, 2.4022242085e-1f);
  p = __fmaf_rn(p, r, 6.9314697760e-1f);
  return __fmaf_rn(p, r, 1.0f);
}

// exp(d) for d <= 0.
__device__ __forceinline__ float exp_of(float d) {
  constexpr float kLog2e = 1.44269504f, kMagic = 12582912.0f;
  d = fmaxf(d, -80.0f);
  const float shifted = __fmaf_rn(d, kLog2e, kMagic);
  const float n = __fsub_rn(shifted, kMagic);
  const float p = power_near(__fmaf_rn(d, kLog2e, -n));
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

__device__ __forceinline__ float exp_term(float x, float scale, float top) {
  return exp_of(__fsub_rn(__fmul_rn(x, scale), top));
}

// round(exp(x * scale - top) * 2^30), ties to even.
__device__ __forceinline__ uint32_t weight_of(float x, float scale, float top) {
  return __float2uint_rn(__fmul_rn(exp_term(x, scale, top), 1073741824.0f));
}

// round(exp(d) * 2^30) for d in [-80, 0]: the same bits, the power of two added where the exponent is.
__device__ __forceinline__ uint32_t weight_at(float d) {
  constexpr float kLog2e = 1.44269504f, kMagic = 12582912.0f + 30.0f;
  const float shifted = __fmaf_rn(d, kLog2e, kMagic);
  const float n = __fsub_rn(shifted, kMagic);
  const float p = power_near(__fmaf_rn(d, kLog2e, -n));
  return __float2uint_rn(__uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23)));
}

// Shared memory of a block.
struct RowShared {
  unsigned long long bins[kBins];
  unsigned long long sums[kRowWarps];
  unsigned long long value;  // results for all threads
  unsigned int word, other;
};

__device__ __forceinline__ unsigned long long warp_sum64(unsigned long long v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

__device__ __forceinline__ unsigned long long warp_largest64(unsigned long long v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffu, v, d);
    v = other > v ? other : v;
  }
  return v;
}

// Sum over the block, for all threads.
__device__ inline unsigned long long row_sum(unsigned long long v, RowShared& sh) {
  v = warp_sum64(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sh.sums[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_sum64(sh.sums[threadIdx.x % 32]);
}

// Sum of doubles over the block, in a fixed order.
__device__ inline double row_sum_double(double v, RowShared& sh) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sh.sums[threadIdx.x / 32] = static_cast<unsigned long long>(__double_as_longlong(v));
  __syncthreads();
  v = __longlong_as_double(static_cast<long long>(sh.sums[threadIdx.x % 32]));
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

struct RowMax {
  float max;
  int index;
  bool nan;
};

// The largest value, the lowest index that has it, and whether some value is not a number.
__device__ inline RowMax row_max(const float* x, int n, RowShared& sh) {
  // Ordered bits above, the complement of the index below: the largest of these is the answer.
  unsigned long long best = 0;
  bool nan = false;
  for (int i = threadIdx.x; i < n; i += kRowThreads) {
    nan |= x[i] != x[i];
    const unsigned long long at =
        (static_cast<unsigned long long>(ordered_bits(x[i])) << 32) | ~static_cast<uint32_t>(i);
    best = at > best ? at : best;
  }
  best = warp_largest64(best);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sh.sums[threadIdx.x / 32] = best;
  nan = __syncthreads_or(nan);
  best = warp_largest64(sh.sums[threadIdx.x % 32]);
  const int index = static_cast<int>(~static_cast<uint32_t>(best));
  return {x[index], index, nan};
}

__device__ inline uint32_t row_largest(uint32_t v, RowShared& sh) {
  __syncthreads();
  if (threadIdx.x == 0) sh.word = 0;
  __syncthreads();
  v = __reduce_max_sync(0xffffffffu, v);
  if (threadIdx.x % 32 == 0) atomicMax(&sh.word, v);
  __syncthreads();
  return sh.word;
}

struct Selected {
  uint32_t offset;          // the largest one with (mass of smaller offsets) < limit
  unsigned long long left;  // limit minus that mass
  unsigned long long mass;  // at the offset itself
};

// The last bin that has mass and starts below the limit; 2 bins per thread. Result in word (bin), value (mass before).
// Begins with a barrier: bins may just have been written, sums and word may still be read.
__device__ inline void find_bin(unsigned long long limit, RowShared& sh) {
  __syncthreads();
  const int t = threadIdx.x, lane = t % 32;
  const unsigned long long a = sh.bins[2 * t], b = sh.bins[2 * t + 1];
  unsigned long long run = a + b;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const unsigned long long other = __shfl_up_sync(0xffffffffu, run, d);
    if (lane >= d) run += other;
  }
  if (t == 0) sh.word = 0;
  if (lane == 31) sh.sums[t / 32] = run;
  __syncthreads();
  unsigned long long before = run - a - b;
  for (int w = 0; w < t / 32; ++w) before += sh.sums[w];
  const bool second = b != 0 && before + a < limit, first = a != 0 && before < limit;
  if (second || first) atomicMax(&sh.word, static_cast<unsigned>(2 * t + (second ? 1 : 0)));
  __syncthreads();
  if (sh.word / 2 == static_cast<unsigned>(t)) sh.value = before + (sh.word % 2 != 0 ? a : 0);
  __syncthreads();
}

// mass(i, offset) of entry i, an integer; offset(i) its distance from the top; `largest` bounds the offsets with mass.
template <class Mass, class Offset>
__device__ Selected select_offset(int n, uint32_t largest, unsigned long long limit, RowShared& sh, const Mass& mass,
                                  const Offset& offset) {
  int shift = 32 - __clz(static_cast<int>(largest)) - kDigit;
  if (shift < 0) shift = 0;
  int above = 31;  // entries count when offset >> above equals prefix; at first all of them do
  uint32_t prefix = 0;
  bool first = true;
  for (;;) {
    __syncthreads();
    for (int b = threadIdx.x; b < kBins; b += kRowThreads) sh.bins[b] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kRowThreads) {
      const uint32_t o = offset(i);
      if (o > largest || (!first && (o >> above) != prefix)) continue;
      const unsigned long long m = mass(i, o);
      if (m != 0) atomicAdd(&sh.bins[(o >> shift) & (kBins - 1)], m);
    }
    find_bin(limit, sh);
    const uint32_t bin = sh.word;
    limit -= sh.value;
    const int d = above - shift;
    prefix = first ? bin : (prefix << d) | (bin & ((1u << d) - 1));
    if (shift == 0) return {prefix, limit, sh.bins[bin]};
    first = false;
    above = shift;
    shift = shift > kDigit ? shift - kDigit : 0;
  }
}

// By one warp: the first i of [begin, end) at which `run` plus the running sum of mass(i) passes `target` goes into
// word.
template <class Mass>
__device__ __forceinline__ void streamk_piece(int begin, int end, unsigned long long run, unsigned long long target,
                                              RowShared& sh, const Mass& mass) {
  const int lane = threadIdx.x % 32;
  for (int i0 = begin; i0 < end; i0 += 32) {
    unsigned long long m = i0 + lane < end ? mass(i0 + lane) : 0;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const unsigned long long other = __shfl_up_sync(0xffffffffu, m, d);
      if (lane >= d) m += other;
    }
    const unsigned passed = __ballot_sync(0xffffffffu, run + m > target);
    if (passed != 0) {
      if (lane == 0) sh.word = static_cast<unsigned>(i0 + __ffs(static_cast<int>(passed)) - 1);
      return;
    }
    run += __shfl_sync(0xffffffffu, m, 31);
  }
}

// The first i at which the running sum of mass(i) passes `target`, which is below the sum of all. The row is cut into
// one piece per warp.
template <class Mass>
__device__ int walk(int n, unsigned long long target, RowShared& sh, const Mass& mass) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int piece = ((n + kRowWarps - 1) / kRowWarps + 31) / 32 * 32;
  const int begin = min(n, warp * piece), end = min(n, begin + piece);
  unsigned long long sum = 0;
  for (int i = begin + lane; i < end; i += 32) sum += mass(i);
  sum = warp_sum64(sum);
  __syncthreads();
  if (lane == 0) sh.sums[warp] = sum;
  if (threadIdx.x == 0) sh.word = static_cast<unsigned>(n - 1);
  __syncthreads();
  unsigned long long run = 0;
  for (int w = 0; w < warp; ++w) run += sh.sums[w];
  if (run <= target && target < run + sum) streamk_piece(begin, end, run, target, sh, mass);
  __syncthreads();
  return static_cast<int>(sh.word);
}

}  // namespace tern::cuda
