// Repetition, frequency and presence penalties over a part of a row (ops/logits.h).
#pragma once

#include "ops/logits.h"

namespace tern::cuda {

// Entries [first, last) of row x, in place; `threads` threads, of which this is number `thread`. A thread looks at 64
// ids at a time: most of their bits are 0, and only seen ids are read. seen, counts: of the row's slot.
__device__ inline void penalise(float* x, int64_t first, int64_t last, const ops::SlotParams& s, const uint64_t* seen,
                                const int32_t* counts, int64_t thread, int64_t threads) {
  const bool counted = s.frequency != 0.0f || s.presence != 0.0f;
  for (int64_t word = first / 64 + thread; 64 * word < last; word += threads) {
    uint64_t left = seen[word];
    if (64 * word < first) left &= ~uint64_t{0} << (first % 64);
    if (last - 64 * word < 64) left &= ~(~uint64_t{0} << (last % 64));
    for (; left != 0; left &= left - 1) {
      const int64_t id = 64 * word + __ffsll(static_cast<long long>(left)) - 1;
      float v = x[id];
      v = v < 0 ? __fmul_rn(v, s.repetition) : __fdiv_rn(v, s.repetition);
      if (counted && counts[id] > 0) {
        v = __fsub_rn(__fsub_rn(v, __fmul_rn(static_cast<float>(counts[id]), s.frequency)), s.presence);
      }
      x[id] = v;
    }
  }
}

}  // namespace tern::cuda
