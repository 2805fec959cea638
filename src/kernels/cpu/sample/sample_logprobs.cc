#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/sample/sample_row.h"

namespace tern::kernels {
namespace {

constexpr int64_t kChunk = 2048;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

double lane_sum(const double* s) {
  double t[kSumLanes];
  std::copy(s, s + kSumLanes, t);
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) t[l] += t[l + half];
  }
  return t[0];
}

// What the values of a row are taken against.
struct Normaliser {
  double log_sum = 0;    // of exp(x * scale - top) over what counts
  float lowest = -kInf;  // logits below it have no mass
};

Normaliser normalise(const SampleKernels& k, const LogprobArgs& a, float largest, const RowSpace& s) {
  const float top = largest * a.scale;
  Normaliser result;
  if (!std::isfinite(top)) return result;
  if (!(a.top_p < 1.0f)) {
    double sums[kSumLanes];
    k.exp_sum(a.x, a.n, a.scale, top, sums);
    result.log_sum = std::log(lane_sum(sums));
    return result;
  }
  // The nucleus, in the integers that sample_row() uses.
  k.weights(a.x, a.n, a.scale, top, s.weights);
  uint64_t mass = 0;
  for (int64_t i = 0; i < a.n; ++i) mass += s.weights[i];
  const double limit = std::max(1.0, std::ceil(static_cast<double>(a.top_p) * static_cast<double>(mass)));
  for (int64_t i = 0; i < a.n; ++i) s.offsets[i] = ordered_bits(largest) - ordered_bits(a.x[i]);
  const uint32_t last = select_offset(s.offsets, s.weights, a.n, static_cast<uint64_t>(limit), s.list, s.bins);
  uint64_t kept = 0;
  result.lowest = largest;
  for (int64_t i = 0; i < a.n; ++i) {
    if (s.offsets[i] > last) continue;
    kept += s.weights[i];
    result.lowest = std::min(result.lowest, a.x[i]);
  }
  result.log_sum = std::log(static_cast<double>(kept) / static_cast<double>(1 << kWeightBits));
  return result;
}

bool better(const Candidate& a, const Candidate& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.id < b.id);
}

// The `top` largest values of x, in order, as (id, x). A heap whose root is the worst one kept; chunks are filtered by
// it.
void largest_values(const SampleKernels& k, const float* x, int64_t n, int32_t top, const RowSpace& s, Candidate* out) {
  int32_t have = 0;
  for (int64_t begin = 0; begin < n && top > 0; begin += kChunk) {
    const float cut = have < top ? -kInf : out[0].logprob;
    const int64_t m =
        k.filter(x + begin, std::min(kChunk, n - begin), cut, kNone, static_cast<int32_t>(begin), s.values, s.indices);
    for (int64_t i = 0; i < m; ++i) {
      const Candidate c{s.indices[i], s.values[i], 0};
      if (have < top) {
        out[have++] = c;
        std::push_heap(out, out + have, better);
      } else if (better(c, out[0])) {
        std::pop_heap(out, out + have, better);
        out[have - 1] = c;
        std::push_heap(out, out + have, better);
      }
    }
  }
  std::sort_heap(out, out + have, better);
}

}  // namespace

void logprobs(const SampleKernels& k, const LogprobArgs& a, const RowSpace& space, Candidate* out) {
  MaxScan best;
  k.max_scan(a.x, a.n, &best);
  if (best.nan != 0) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int32_t i = 0; i <= a.top; ++i) out[i] = {i == 0 ? a.target : i - 1, nan, 0};
    return;
  }
  const Normaliser norm = a.logits ? Normaliser{} : normalise(k, a, best.max, space);
  const float top = best.max * a.scale;
  const auto value = [&](float x) {
    const float y = x * a.scale;
    if (a.logits) return y;
    if (x < norm.lowest) return -kInf;
    if (!std::isfinite(top)) return x == best.max ? 0.0f : -kInf;
    return static_cast<float>(static_cast<double>(y) - static_cast<double>(top) - norm.log_sum);
  };
  largest_values(k, a.x, a.n, a.top, space, out + 1);
  for (int32_t i = 1; i <= a.top; ++i) out[i].logprob = value(out[i].logprob), out[i].rank = i;
  const float x = a.x[a.target];
  out[0] = {a.target, value(x), static_cast<int32_t>(k.count_above(a.x, a.n, x)) + 1};
}

float entropy(const SampleKernels& k, const float* x, int64_t n, float scale) {
  MaxScan best;
  k.max_scan(x, n, &best);
  if (best.nan != 0 || best.max == -kInf) return std::numeric_limits<float>::quiet_NaN();
  const float top = best.max * scale;
  if (!std::isfinite(top)) return 0.0f;
  // With d = x * scale - top: log(sum exp(d)) - sum(d * exp(d)) / sum exp(d).
  double sum = 0, weighted = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float d = x[i] * scale - top;
    if (!(d > -80.0f)) continue;
    const auto e = static_cast<double>(std::exp(d));
    sum += e, weighted += e * static_cast<double>(d);
  }
  return static_cast<float>(std::max(0.0, std::log(sum) - weighted / sum));
}

}  // namespace tern::kernels
