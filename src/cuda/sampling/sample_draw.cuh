// Temperature, min-p, top-k, top-p and the draw of one row by one block: all that sample_fast.cuh does not do.
#pragma once

#include "cuda/runtime/context.h"
#include "cuda/sampling/sample_row.cuh"
#include "ops/sample.h"
#include "ops/sample_random.h"

namespace tern::cuda {

using ops::SampleRow;
using ops::SlotArrays;
using ops::SlotParams;

// What is left of a row: entries of weight at least `least`, no further from the top than the offsets say.
struct Kept {
  float scale, top;
  uint32_t base;  // ordered bits of the largest logit
  double least = 0.0;
  uint32_t last_k = 0xffffffffu, last_p = 0xffffffffu;
  int last_tie = 0x7fffffff;  // of the entries at last_k those with higher ids are out

  __device__ __forceinline__ uint32_t offset(float x) const { return base - ordered_bits(x); }
  __device__ __forceinline__ uint32_t weight(float x, int id, uint32_t o) const {
    if (o > last_k || o > last_p || (o == last_k && id > last_tie)) return 0;
    const uint32_t w = weight_of(x, scale, top);
    return w < least ? 0 : w;
  }
};

// ceil(fraction * mass), at least 1.
__device__ inline unsigned long long mass_limit(float fraction, unsigned long long mass) {
  const double v = ceil(__dmul_rn(static_cast<double>(fraction), __ull2double_rn(mass)));
  return v < 1.0 ? 1 : static_cast<unsigned long long>(v);
}

__device__ inline void keep_top_k(const float* x, int n, int k, Kept& kept, RowShared& sh) {
  const auto offset = [&](int i) { return kept.offset(x[i]); };
  uint32_t largest = 0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) largest = max(largest, offset(i));
  largest = row_largest(largest, sh);
  const Selected s = select_offset(
      n, largest, static_cast<unsigned long long>(k), sh, [](int, uint32_t) { return 1ull; }, offset);
  kept.last_k = s.offset;
  if (s.mass <= s.left) return;
  kept.last_tie =
      walk(n, s.left - 1, sh, [&](int i) { return static_cast<unsigned long long>(offset(i) == s.offset); });
}

__device__ inline unsigned long long kept_mass(const float* x, int n, const Kept& kept, RowShared& sh) {
  unsigned long long sum = 0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) sum += kept.weight(x[i], i, kept.offset(x[i]));
  return row_sum(sum, sh);
}

__device__ inline void keep_top_p(const float* x, int n, unsigned long long limit, Kept& kept, RowShared& sh) {
  uint32_t largest = 0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) {
    const uint32_t o = kept.offset(x[i]);
    if (kept.weight(x[i], i, o) != 0) largest = max(largest, o);
  }
  largest = row_largest(largest, sh);
  const Selected s = select_offset(
      n, largest, limit, sh,
      [&](int i, uint32_t o) { return static_cast<unsigned long long>(kept.weight(x[i], i, o)); },
      [&](int i) { return kept.offset(x[i]); });
  kept.last_p = s.offset;
}

struct Draw {
  int id;
  int status;
  float prob;
};

// Min-p, top-k and top-p; the mass that stays. `s`: SlotParams, or another struct that names them alike.
template <class Wishes>
__device__ inline unsigned long long truncate(const float* x, int n, const Wishes& s, unsigned long long row_mass,
                                              Kept& kept, RowShared& sh) {
  const bool has_top_k = s.top_k > 0 && s.top_k < n, has_top_p = s.top_p < 1.0f;
  unsigned long long mass = row_mass;
  if (s.min_p > 0.0f) kept.least = ceil(__dmul_rn(static_cast<double>(s.min_p), 1073741824.0));
  if (has_top_k) keep_top_k(x, n, s.top_k, kept, sh);
  if (has_top_k || s.min_p > 0.0f) mass = kept_mass(x, n, kept, sh);
  if (!has_top_p) return mass;
  keep_top_p(x, n, mass_limit(s.top_p, has_top_k ? mass : row_mass), kept, sh);
  return kept_mass(x, n, kept, sh);
}

__device__ inline int draw_kept(const float* x, int n, const SlotParams& s, uint64_t random,
                                unsigned long long row_mass, Kept kept, RowShared& sh) {
  const unsigned long long mass = truncate(x, n, s, row_mass, kept, sh);
  return walk(n, __umul64hi(random, mass), sh,
              [&](int i) { return static_cast<unsigned long long>(kept.weight(x[i], i, kept.offset(x[i]))); });
}

__device__ inline Draw draw(const float* x, int n, const SlotParams& s, uint64_t random, bool want_prob,
                            RowShared& sh) {
  const RowMax best = row_max(x, n, sh);
  if (best.nan) return {0, ops::kSampleNan, 0.0f};
  if (best.max == -INFINITY) return {0, ops::kSampleEmpty, 0.0f};
  const float top = __fmul_rn(best.max, s.scale);
  if (!isfinite(top)) return {best.index, ops::kSampleOk, 1.0f};
  const bool pick_top = s.greedy != 0 || s.top_k == 1 || s.top_p < 1e-5f;
  if (pick_top && !want_prob) return {best.index, ops::kSampleOk, 1.0f};
  const Kept all{s.scale, top, ordered_bits(best.max)};
  const unsigned long long mass = kept_mass(x, n, all, sh);
  const int id = pick_top ? best.index : draw_kept(x, n, s, random, mass, all, sh);
  float prob = 1.0f;
  if (want_prob) prob = static_cast<float>(static_cast<double>(weight_of(x[id], s.scale, top)) / __ull2double_rn(mass));
  return {id, ops::kSampleOk, prob};
}

// The random bits of a row.
__device__ inline uint64_t row_random(const SampleRow& r, const SlotParams& s) {
  return s.greedy != 0 ? 0 : ops::random_bits(s.seed, static_cast<uint32_t>(r.position), static_cast<uint32_t>(r.draw));
}

struct SampleOut {
  int32_t *ids, *status;
  float* probs;  // null: not wanted
};

// By one thread: the result, and the token's marks.
__device__ inline void finish_row(const SampleRow& r, const SlotParams& s, const SlotArrays& slots, const Draw& d,
                                  const SampleOut& out) {
  out.ids[r.logit_row] = d.id;
  out.status[r.logit_row] = d.status;
  if (out.probs != nullptr) out.probs[r.logit_row] = d.prob;
  if (s.penalised == 0) return;
  // Rows may share a slot: the order of marks does not matter.
  atomicOr(reinterpret_cast<unsigned long long*>(slots.seen + r.slot * ops::seen_words(slots.vocab) + d.id / 64),
           1ull << (d.id % 64));
  atomicAdd(slots.counts + r.slot * slots.vocab + d.id, 1);
}

}  // namespace tern::cuda
