#include "kernels/cpu/sample_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tern::kernels {
namespace {

constexpr int64_t kChunk = 2048;
constexpr float kInf = std::numeric_limits<float>::infinity();

// ceil(fraction * mass), at least 1: masses are below 2^53, so the product is rounded once and alike everywhere.
uint64_t mass_limit(float fraction, uint64_t mass) {
  const double v = std::ceil(static_cast<double>(fraction) * static_cast<double>(mass));
  return v < 1.0 ? 1 : static_cast<uint64_t>(v);
}

uint64_t scaled(uint64_t random, uint64_t mass) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random) * mass) >> 64);
}

struct Masses {
  MassScan total;
  int64_t chunks = 0;
};

Masses scan_masses(const SampleKernels& k, const DrawArgs& a, float top, const RowSpace& space) {
  // Distances below the top, in units of the exponent, at which candidate lists are cut.
  constexpr float kDistance[kMassCuts] = {3.0f, 7.0f, 12.0f};
  Masses m{};
  for (int j = 0; j < kMassCuts; ++j) m.total.cut[j] = (top - kDistance[j]) / a.scale;
  MassScan part = m.total;
  part.scale = a.scale, part.top = top;
  for (int64_t begin = 0; begin < a.n; begin += kChunk) {
    part.x = a.x + begin, part.n = std::min(kChunk, a.n - begin);
    k.mass_scan(&part);
    space.chunk_mass[m.chunks++] = part.mass;
    m.total.mass += part.mass;
    for (int j = 0; j < kMassCuts; ++j) {
      m.total.cut_mass[j] += part.cut_mass[j], m.total.cut_count[j] += part.cut_count[j];
    }
  }
  return m;
}

// A threshold below which no token can stay.
float candidate_cut(const DrawArgs& a, float top, const MassScan& m, bool has_top_k, bool has_top_p) {
  float cut = -kInf;
  for (int j = 0; j < kMassCuts; ++j) {
    const bool enough =
        has_top_k ? m.cut_count[j] >= a.top_k : has_top_p && m.cut_mass[j] >= mass_limit(a.top_p, m.mass);
    if (enough) {
      cut = m.cut[j];
      break;
    }
  }
  // The logarithm only narrows the list; the margin covers its rounding. Weights decide.
  if (a.min_p > 0.0f) cut = std::max(cut, (top + std::log(a.min_p) - 0.01f) / a.scale);
  return cut;
}

int64_t collect(const SampleKernels& k, const DrawArgs& a, float cut, float top, float largest, const RowSpace& s) {
  const int64_t n = k.filter(a.x, a.n, cut, 0, s.values, s.indices);
  k.weights(s.values, n, a.scale, top, s.weights);
  const uint32_t base = ordered_bits(largest);
  for (int64_t i = 0; i < n; ++i) s.offsets[i] = base - ordered_bits(s.values[i]);
  return n;
}

// Takes the weight of everything outside the k largest; ties stay by lowest id.
void keep_top_k(int64_t n, int32_t k, const RowSpace& s) {
  const uint32_t limit = select_offset(s.offsets, nullptr, n, static_cast<uint64_t>(k), s.list, s.bins);
  int64_t above = 0;
  for (int64_t i = 0; i < n; ++i) above += s.offsets[i] < limit;
  int64_t ties = k - above;
  for (int64_t i = 0; i < n; ++i) {
    if (s.offsets[i] > limit || (s.offsets[i] == limit && ties-- <= 0)) s.weights[i] = 0;
  }
}

uint64_t sum(const uint32_t* w, int64_t n) {
  uint64_t total = 0;
  for (int64_t i = 0; i < n; ++i) total += w[i];
  return total;
}

// Applies min-p, top-k and top-p to the collected candidates; returns the mass that stays.
uint64_t truncate(const DrawArgs& a, int64_t n, bool has_top_k, bool has_top_p, uint64_t row_mass, const RowSpace& s) {
  if (a.min_p > 0.0f) {
    const double least = std::ceil(static_cast<double>(a.min_p) * static_cast<double>(1 << kWeightBits));
    for (int64_t i = 0; i < n; ++i) {
      if (s.weights[i] < least) s.weights[i] = 0;
    }
  }
  if (has_top_k && n > a.top_k) keep_top_k(n, a.top_k, s);
  uint64_t mass = sum(s.weights, n);
  if (!has_top_p) return mass;
  const uint64_t limit = mass_limit(a.top_p, has_top_k ? mass : row_mass);
  const uint32_t last = select_offset(s.offsets, s.weights, n, limit, s.list, s.bins);
  mass = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (s.offsets[i] > last) s.weights[i] = 0;
    mass += s.weights[i];
  }
  return mass;
}

// Index of the first entry at which the running sum passes `target`.
int64_t walk(const uint32_t* w, int64_t n, uint64_t target) {
  uint64_t run = 0;
  for (int64_t i = 0; i < n; ++i) {
    run += w[i];
    if (run > target) return i;
  }
  return n - 1;  // not reached: target is below the sum
}

int32_t draw_from_all(const SampleKernels& k, const DrawArgs& a, float top, const Masses& m, const RowSpace& s) {
  uint64_t target = scaled(a.random, m.total.mass);
  int64_t chunk = 0;
  while (target >= s.chunk_mass[chunk]) target -= s.chunk_mass[chunk++];
  const int64_t begin = chunk * kChunk, n = std::min(kChunk, a.n - begin);
  k.weights(a.x + begin, n, a.scale, top, s.weights);
  return static_cast<int32_t>(begin + walk(s.weights, n, target));
}

float weight_prob(const SampleKernels& k, const DrawArgs& a, float top, int32_t id, uint64_t mass) {
  uint32_t w = 0;
  k.weights(a.x + id, 1, a.scale, top, &w);
  return static_cast<float>(static_cast<double>(w) / static_cast<double>(mass));
}

template <class T>
T* carve(char*& p, int64_t n) {
  T* result = reinterpret_cast<T*>(p);
  p += (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
  return result;
}

RowSpace lay_out(char*& p, int64_t capacity) {
  const int64_t n = capacity + 16;  // whole vectors may be stored at the end
  RowSpace s;
  s.capacity = capacity;
  s.values = carve<float>(p, n);
  s.indices = carve<int32_t>(p, n);
  s.offsets = carve<uint32_t>(p, n);
  s.weights = carve<uint32_t>(p, n);
  s.list = carve<uint32_t>(p, n);
  s.chunk_mass = carve<uint64_t>(p, capacity / kChunk + 1);
  s.bins = carve<uint64_t>(p, kSelectBins);
  return s;
}

}  // namespace

size_t RowSpace::bytes(int64_t capacity) {
  const auto n = static_cast<size_t>(capacity) + 16;
  const size_t chunks = static_cast<size_t>(capacity / kChunk) + 1;
  return 5 * ((n * 4 + 63) / 64 * 64) + (chunks * 8 + 63) / 64 * 64 + kSelectBins * 8;
}

RowSpace RowSpace::make(void* memory, int64_t capacity) {
  char* p = static_cast<char*>(memory);
  return lay_out(p, capacity);
}

uint32_t select_offset(const uint32_t* offsets, const uint32_t* weights, int64_t n, uint64_t limit, uint32_t* list,
                       uint64_t* bins) {
  constexpr int kDigit = 11;
  static_assert(1 << kDigit == kSelectBins);
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, offsets[i]);
  int shift = std::max(0, static_cast<int>(std::bit_width(largest)) - kDigit);
  bool listed = false;
  int64_t m = n;
  for (;;) {
    std::memset(bins, 0, sizeof(uint64_t) * kSelectBins);
    for (int64_t i = 0; i < m; ++i) {
      const uint32_t at = listed ? list[i] : static_cast<uint32_t>(i);
      bins[(offsets[at] >> shift) & (kSelectBins - 1)] += weights != nullptr ? weights[at] : 1;
    }
    uint64_t below = 0, below_last = 0;
    uint32_t last = 0;
    for (uint32_t b = 0; b < kSelectBins && below < limit; ++b) {
      if (bins[b] == 0) continue;
      last = b, below_last = below;
      below += bins[b];
    }
    limit -= below_last;
    int64_t kept = 0;
    uint32_t any = 0;
    for (int64_t i = 0; i < m; ++i) {
      const uint32_t at = listed ? list[i] : static_cast<uint32_t>(i);
      if (((offsets[at] >> shift) & (kSelectBins - 1)) != last || (weights != nullptr && weights[at] == 0)) continue;
      list[kept++] = at;
      any = offsets[at];
    }
    listed = true, m = kept;
    if (shift == 0 || kept == 0) return any;
    shift = std::max(0, shift - kDigit);
  }
}

DrawResult draw(const SampleKernels& k, const DrawArgs& a, const RowSpace& space) {
  MaxScan best;
  k.max_scan(a.x, a.n, &best);
  DrawResult r;
  if (best.nan != 0) {
    r.status = DrawStatus::kNan;
    return r;
  }
  if (best.max == -kInf) {
    r.status = DrawStatus::kEmpty;
    return r;
  }
  r.id = best.index;
  r.prob = 1.0f;
  const float top = best.max * a.scale;
  if (!std::isfinite(top)) return r;  // an infinite logit, or a temperature near zero: nothing else has mass
  const bool pick_top = a.greedy || a.top_k == 1 || a.top_p < 1e-5f;
  if (pick_top && !a.want_prob) return r;
  const Masses m = scan_masses(k, a, top, space);
  if (!pick_top) {
    const bool has_top_k = a.top_k > 0 && a.top_k < a.n, has_top_p = a.top_p < 1.0f;
    if (!has_top_k && !has_top_p && a.min_p <= 0.0f) {
      r.id = draw_from_all(k, a, top, m, space);
    } else {
      const float cut = candidate_cut(a, top, m.total, has_top_k, has_top_p);
      const int64_t n = collect(k, a, cut, top, best.max, space);
      const uint64_t mass = truncate(a, n, has_top_k, has_top_p, m.total.mass, space);
      r.id = space.indices[walk(space.weights, n, scaled(a.random, mass))];
    }
  }
  if (a.want_prob) r.prob = weight_prob(k, a, top, r.id, m.total.mass);
  return r;
}

}  // namespace tern::kernels
