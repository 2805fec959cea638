// Repetition, frequency and presence penalties over a part of a row (ops/logits.h).
#pragma once

#include "ops/logits.h"

namespace tern::cuda {

__device__ __forceinline__ float penalised_logit(float v, const ops::SlotParams& s, int32_t count) {
  v = v < 0 ? __fmul_rn(v, s.repetition) : __fdiv_rn(v, s.repetition);
  if (count > 0) v = __fsub_rn(__fsub_rn(v, __fmul_rn(static_cast<float>(count), s.frequency)), s.presence);
  return v;
}

// The 32 bits of ids from `begin` on, of which only those in [first, last) may be set.
template <class Id>
__device__ __forceinline__ uint32_t seen_word(const uint32_t* words, Id begin, Id first, Id last) {
  uint32_t bits = begin < last ? words[begin / 32] : 0;
  if (begin < first) bits &= ~0u << (first % 32);
  if (last - begin < 32 && begin < last) bits &= ~(~0u << (last % 32));
  return bits;
}

// Entries [first, last) of row x, in place; `threads` threads, of which this is number `thread`. Most bits of seen are
// 0, and only seen ids are read. A thread has kWords words of 32 ids at a time and looks at one id of each at once, so
// that it waits for memory as seldom as it can. seen, counts: of the row's slot.
__device__ inline void penalise(float* x, int64_t first, int64_t last, const ops::SlotParams& s, const uint64_t* seen,
                                const int32_t* counts, int64_t thread, int64_t threads) {
  constexpr int kWords = 4;
  const auto* words = reinterpret_cast<const uint32_t*>(seen);
  const ops::SlotParams own = s;  // else read again after every store to x
  const bool counted = own.frequency != 0.0f || own.presence != 0.0f;
  for (int64_t word = first / 32 + thread; 32 * word < last; word += kWords * threads) {
    uint32_t left[kWords];
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      left[k] = seen_word(words, 32 * (word + k * threads), first, last);
    }
    while ((left[0] | left[1] | left[2] | left[3]) != 0) {
      float v[kWords];
      int32_t count[kWords];
      int64_t id[kWords];
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        id[k] = 32 * (word + k * threads) + __ffs(static_cast<int>(left[k])) - 1;
        v[k] = left[k] != 0 ? x[id[k]] : 0.0f;
        count[k] = counted && left[k] != 0 ? counts[id[k]] : 0;
      }
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        if (left[k] != 0) x[id[k]] = penalised_logit(v[k], own, count[k]);
        left[k] &= left[k] - 1;
      }
    }
  }
}

// The same by a block of kThreads, with room for `room` ids at `queue` and a counter that is 0, in shared memory: the
// ids are put side by side first, so that memory is waited for once and not once per id of a word. All threads; a
// barrier must follow.
template <int kThreads>
__device__ inline void penalise_queued(float* x, int first, int last, const ops::SlotParams& s, const uint64_t* seen,
                                       const int32_t* counts, uint32_t* queue, int room, uint32_t* counter) {
  constexpr int kWords = 4, kTogether = 2;
  const auto* words = reinterpret_cast<const uint32_t*>(seen);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  for (int word = first / 32 + thread - lane; 32 * word < last; word += kWords * kThreads) {
    uint32_t left[kWords];
    int own = 0;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      left[k] = seen_word(words, 32 * (word + lane + k * kThreads), first, last);
      own += __popc(left[k]);
    }
    int upto = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, upto, d);
      if (lane >= d) upto += other;
    }
    uint32_t at = lane == 31 && upto > 0 ? atomicAdd(counter, static_cast<uint32_t>(upto)) : 0;
    at = __shfl_sync(0xffffffffu, at, 31) + static_cast<uint32_t>(upto - own);
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      const auto begin = static_cast<uint32_t>(32 * (word + lane + k * kThreads));
      for (; left[k] != 0; left[k] &= left[k] - 1, ++at) {
        const auto bit = static_cast<uint32_t>(__ffs(static_cast<int>(left[k])) - 1);
        if (at < static_cast<uint32_t>(room)) queue[at] = begin + bit;
      }
    }
  }
  __syncthreads();
  const auto all = static_cast<int>(*counter);
  if (all > room) return penalise(x, first, last, s, seen, counts, thread, kThreads);
  const ops::SlotParams own = s;
  const bool counted = own.frequency != 0.0f || own.presence != 0.0f;
  for (int i = thread; i < all; i += kTogether * kThreads) {
    float v[kTogether];
    int32_t count[kTogether];
    uint32_t id[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const bool there = i + k * kThreads < all;
      id[k] = there ? queue[i + k * kThreads] : 0;
      v[k] = there ? x[id[k]] : 0.0f;
      count[k] = there && counted ? counts[id[k]] : 0;
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (i + k * kThreads < all) x[id[k]] = penalised_logit(v[k], own, count[k]);
    }
  }
}

}  // namespace tern::cuda
