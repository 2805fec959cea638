// The CPU's functions behind ops/backend.h. Work is cut by rows or columns; results never depend on the cut.
#pragma once

#include "device/compute_pool.h"
#include "ops/backend.h"

namespace tern::ops::cpu {

#define TERN_OP(name, Params) Status name(const Params&, device::Stream);
#define TERN_OP_HOST(name, Params) Status name(const Params&, device::Stream);
#define TERN_OP_FUNCTION(Result, name, Parameters) Result name Parameters;
#include "ops/op_list.inc"

inline int thread_count(device::Stream s) { return s.pool == nullptr ? 1 : s.pool->threads(); }

// f(part) for part in [0, parts); in the calling thread when the stream has no pool.
template <class F>
void for_parts(device::Stream s, int parts, F&& f) {
  if (s.pool != nullptr) {
    s.pool->parallel(parts, f);
  } else {
    for (int p = 0; p < parts; ++p) f(p);
  }
}
template <class F>
void for_parts_dynamic(device::Stream s, int parts, F&& f) {
  if (s.pool != nullptr) {
    s.pool->parallel_dynamic(parts, f);
  } else {
    for (int p = 0; p < parts; ++p) f(p);
  }
}

// f(begin, end) over [0, n) cut into contiguous ranges of at least `grain`, a few per thread; small work stays in the
// calling thread, because waking another costs more.
template <class F>
void for_ranges(device::Stream s, int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int64_t most = (n + grain - 1) / grain, few = 4 * thread_count(s);
  const int64_t parts = thread_count(s) == 1 ? 1 : most < few ? most : few;
  for_parts(s, static_cast<int>(parts), [&](int p) { f(n * p / parts, n * (p + 1) / parts); });
}

// Notes a token of the prompt or of the output in what penalties read.
inline void mark_token(const SlotArrays& s, int slot, int32_t id, bool output) {
  s.seen[slot * seen_words(s.vocab) + id / 64] |= uint64_t{1} << (id % 64);
  if (output) ++s.counts[slot * s.vocab + id];
}

// Rows worth handing to another thread when a row has `elements` values of light work.
inline int64_t row_grain(int64_t elements) { return elements >= 16384 ? 1 : 1 + 16384 / (elements > 0 ? elements : 1); }

}  // namespace tern::ops::cpu
