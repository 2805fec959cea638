// The part of a row of logits that one block of its cluster looks at, in quads: 16 aligned bytes. What the last quad of
// a row has behind the row's end reads as -inf.
#pragma once

#include "cuda/sampling/sample_row.cuh"

namespace tern::cuda {

inline constexpr int kBatch = 4 * kRowThreads;  // quads that a block loads at once

struct Piece {
  float* x;  // the whole row, 16-byte aligned
  int n;
  int begin, end;  // quads of this block
  int whole;       // those before it are within the row
  float4* kept;    // shared memory: copies of the quads from `begin`
  int held = 0;    // how many of them there are: all, or whole batches

  // Quads are dealt out in steps of `step`.
  __device__ Piece(float* row, int length, int rank, int cluster, int step, float4* shared)
      : x(row), n(length), kept(shared) {
    const int quads = (n + 3) / 4, steps = (quads + step - 1) / step;
    begin = min(quads, steps * rank / cluster * step), end = min(quads, steps * (rank + 1) / cluster * step);
    whole = min(end, n / 4);
  }
  // How many quads to keep of `room`.
  __device__ int keep(int room) const { return room >= end - begin ? end - begin : room / kBatch * kBatch; }
  // Where quad `at` is, and those behind it in its batch.
  __device__ __forceinline__ const float4* from(int at) const {
    return at - begin < held ? kept + (at - begin) : reinterpret_cast<const float4*>(x) + at;
  }
  __device__ __forceinline__ bool ragged(int at) const { return 4 * at + 3 >= n; }
  // A quad without what is behind the row's end.
  __device__ __forceinline__ float4 cut(int at, float4 v) const {
    if (4 * at + 1 >= n) v.y = -INFINITY;
    if (4 * at + 2 >= n) v.z = -INFINITY;
    if (4 * at + 3 >= n) v.w = -INFINITY;
    return v;
  }
  // kCount quads that lie kStep apart, the first at `at`; -inf from `end` on.
  template <int kCount, int kStep>
  __device__ __forceinline__ void load(int at, float4 (&v)[kCount]) const {
    const float4* source = from(at);
    if (at + (kCount - 1) * kStep < whole) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) v[k] = source[k * kStep];
      return;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      v[k] = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      if (at + k * kStep < end) v[k] = source[k * kStep];
    }
    if (!ragged(at + (kCount - 1) * kStep)) return;
#pragma unroll
    for (int k = 0; k < kCount; ++k) v[k] = cut(at + k * kStep, v[k]);
  }
};

// Brings a piece into the second cache; by one thread. Not an access: what is there later is still to be waited for.
__device__ __forceinline__ void prefetch(const Piece& p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto bytes = static_cast<uint32_t>(p.end - p.begin) * 16u;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p.x + 4 * static_cast<int64_t>(p.begin)), "r"(bytes)
               : "memory");
#endif
}

// f(quad, values) for all quads of the piece, and for a few of -inf behind it; each thread in ascending order, four
// loads at a time, the next four under way: for a pass that does little with each.
template <class F>
__device__ __forceinline__ void for_quads(const Piece& p, const F& f) {
  constexpr int kLoads = kBatch / kRowThreads;
  int j = p.begin + static_cast<int>(threadIdx.x);
  float4 v[kLoads], next[kLoads];
  if (j < p.end) p.load<kLoads, kRowThreads>(j, v);
#pragma unroll 1
  for (; j < p.end; j += kBatch) {
    if (j + kBatch < p.end) p.load<kLoads, kRowThreads>(j + kBatch, next);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) f(j + k * kRowThreads, v[k]);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) v[k] = next[k];
  }
}

// The same by batches in descending order, none under way ahead: behind for_quads(), what that one read last is near.
template <class F>
__device__ __forceinline__ void for_quads_back(const Piece& p, const F& f) {
  constexpr int kLoads = kBatch / kRowThreads;
  if (p.begin >= p.end) return;
  float4 v[kLoads];
#pragma unroll 1
  for (int batch = p.begin + (p.end - 1 - p.begin) / kBatch * kBatch; batch >= p.begin; batch -= kBatch) {
    const int j = batch + static_cast<int>(threadIdx.x);
    if (j >= p.end) continue;
    p.load<kLoads, kRowThreads>(j, v);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) f(j + k * kRowThreads, v[k]);
  }
}

}  // namespace tern::cuda
