#include "kernels/cpu/sample/sample_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tern::kernels {
namespace {

constexpr int64_t kChunk = 2048;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
// Nuclei of more candidates than this are found by scans instead of lists.
constexpr int64_t kLongList = 4096;

// ceil(fraction * mass), at least 1: masses are below 2^53, so the product is rounded once and alike everywhere.
uint64_t mass_limit(float fraction, uint64_t mass) {
  const double v = std::ceil(static_cast<double>(fraction) * static_cast<double>(mass));
  return v < 1.0 ? 1 : static_cast<uint64_t>(v);
}

uint64_t scaled(uint64_t random, uint64_t mass) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random) * mass) >> 64);
}

bool picks_top(const SampleRowArgs& a) { return a.greedy || a.top_k == 1 || a.top_p < 1e-5f; }

struct Masses {
  MassScan total;
  int64_t chunks = 0;
};

Masses scan_masses(const SampleKernels& k, const SampleRowArgs& a, float top, bool cuts, bool keep,
                   const RowSpace& space) {
  // Distances below the top, in units of the exponent, at which candidate lists are cut.
  constexpr float kDistance[kMassCuts] = {3.0f, 7.0f, 12.0f};
  Masses m{};
  for (int j = 0; j < kMassCuts; ++j) m.total.cut[j] = cuts ? (top - kDistance[j]) / a.scale : kInf;
  MassScan part = m.total;
  part.scale = a.scale, part.top = top;
  for (int64_t begin = 0; begin < a.n; begin += kChunk) {
    part.x = a.x + begin, part.n = std::min(kChunk, a.n - begin);
    part.weights = keep ? space.weights + begin : nullptr;
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
float candidate_cut(const SampleRowArgs& a, float top, const MassScan& m, bool has_top_k, bool has_top_p) {
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

int64_t collect(const SampleKernels& k, const SampleRowArgs& a, float cut, float top, float largest,
                const RowSpace& s) {
  const int64_t n = k.filter(a.x, a.n, cut, kNone, 0, s.values, s.indices);
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
uint64_t truncate(const SampleRowArgs& a, int64_t n, bool has_top_k, bool has_top_p, uint64_t row_mass,
                  const RowSpace& s) {
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

int32_t sample_from_all(const SampleKernels& k, const SampleRowArgs& a, float top, const Masses& m, const RowSpace& s) {
  uint64_t target = scaled(a.random, m.total.mass);
  int64_t chunk = 0;
  while (target >= s.chunk_mass[chunk]) target -= s.chunk_mass[chunk++];
  const int64_t begin = chunk * kChunk, n = std::min(kChunk, a.n - begin);
  k.weights(a.x + begin, n, a.scale, top, s.weights);
  return static_cast<int32_t>(begin + walk(s.weights, n, target));
}

// Where the nucleus ends: mass(x >= low) >= limit > mass(x >= high).
struct Bracket {
  float low = 0, high = 0;
  uint64_t low_mass = 0, high_mass = 0;
  int64_t low_count = 0, high_count = 0;
};

Bracket first_bracket(const SampleRowArgs& a, float top, float largest, const MassScan& m, uint64_t limit) {
  Bracket b;
  b.low = (top - 22.0f) / a.scale, b.low_mass = m.mass, b.low_count = a.n;  // no weight is left below
  b.high = std::nextafter(largest, kInf);
  for (int j = 0; j < kMassCuts; ++j) {
    if (m.cut_mass[j] >= limit) {
      b.low = m.cut[j], b.low_mass = m.cut_mass[j], b.low_count = m.cut_count[j];
      break;
    }
    b.high = m.cut[j], b.high_mass = m.cut_mass[j], b.high_count = m.cut_count[j];
  }
  return b;
}

// Narrows the bracket by scans around an interpolated guess until few values lie inside.
void narrow(const SampleKernels& k, const SampleRowArgs& a, uint64_t limit, const RowSpace& s, Bracket& b) {
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds && b.low_count - b.high_count > kLongList / 4; ++round) {
    const float width = b.high - b.low;
    const float part =
        static_cast<float>(static_cast<double>(limit - b.high_mass) / static_cast<double>(b.low_mass - b.high_mass));
    const float step = width * (round == 0 ? 0.15f : 0.04f);
    const float guess = std::clamp(b.high - part * width, b.low + 1.5f * step, b.high - 1.5f * step);
    MassScan scan{a.x, a.n, a.scale, 0.0f, {guess + step, guess, guess - step}, 0, {}, {}, nullptr};
    if (!(scan.cut[2] > b.low && scan.cut[1] > scan.cut[2] && scan.cut[0] > scan.cut[1] && b.high > scan.cut[0]))
      return;
    k.cut_scan(&scan, s.weights);
    const int64_t before = b.low_count - b.high_count;
    for (int j = 0; j < kMassCuts; ++j) {
      if (scan.cut_mass[j] >= limit) {
        b.low = scan.cut[j], b.low_mass = scan.cut_mass[j], b.low_count = scan.cut_count[j];
        break;
      }
      b.high = scan.cut[j], b.high_mass = scan.cut_mass[j], b.high_count = scan.cut_count[j];
    }
    if (round > 0 && b.low_count - b.high_count == before) return;  // ties
  }
}

bool long_list(const MassScan& m, float cut) {
  for (int j = 0; j < kMassCuts; ++j) {
    if (cut == m.cut[j]) return m.cut_count[j] > kLongList;
  }
  return true;
}

// Top-p alone over a wide nucleus, without listing it; the row's weights are in s.weights: the same tokens and the same
// draw as by truncate() and walk().
int32_t sample_from_nucleus(const SampleKernels& k, const SampleRowArgs& a, float top, float largest, const MassScan& m,
                            const RowSpace& s) {
  const uint64_t limit = mass_limit(a.top_p, m.mass);
  Bracket b = first_bracket(a, top, largest, m, limit);
  narrow(k, a, limit, s, b);
  const int64_t n = k.filter(a.x, a.n, b.low, b.high, 0, s.values, s.indices);
  const uint32_t base = ordered_bits(largest);
  for (int64_t i = 0; i < n; ++i) {
    s.offsets[i] = base - ordered_bits(s.values[i]);
    s.picked[i] = s.weights[s.indices[i]];
  }
  const uint32_t last = select_offset(s.offsets, s.picked, n, limit - b.high_mass, s.list, s.bins);
  const float least = from_ordered(base - last);
  MassScan part{nullptr, 0, a.scale, top, {kInf, kInf, least}, 0, {}, {}, nullptr};
  uint64_t mass = 0;
  int64_t chunk = 0;
  for (int64_t begin = 0; begin < a.n; begin += kChunk, ++chunk) {
    part.x = a.x + begin, part.n = std::min(kChunk, a.n - begin);
    k.cut_scan(&part, s.weights + begin);
    s.chunk_mass[chunk] = part.cut_mass[2];
    mass += part.cut_mass[2];
  }
  uint64_t target = scaled(a.random, mass);
  for (chunk = 0; target >= s.chunk_mass[chunk]; ++chunk) target -= s.chunk_mass[chunk];
  uint64_t run = 0;
  for (int64_t i = chunk * kChunk; i < a.n; ++i) {
    if (a.x[i] >= least) run += s.weights[i];
    if (run > target) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(a.n - 1);  // not reached: target is below the chunk's mass
}

float weight_prob(const SampleKernels& k, const SampleRowArgs& a, float top, int32_t id, uint64_t mass) {
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
  s.picked = carve<uint32_t>(p, n);
  s.chunk_mass = carve<uint64_t>(p, capacity / kChunk + 1);
  s.bins = carve<uint64_t>(p, kSelectBins);
  return s;
}

}  // namespace

size_t RowSpace::bytes(int64_t capacity) {
  const auto n = static_cast<size_t>(capacity) + 16;
  const size_t chunks = static_cast<size_t>(capacity / kChunk) + 1;
  return 6 * ((n * 4 + 63) / 64 * 64) + (chunks * 8 + 63) / 64 * 64 + kSelectBins * 8;
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

SampleRowResult sample_row(const SampleKernels& k, const SampleRowArgs& a, const RowSpace& space) {
  MaxScan best;
  k.max_scan(a.x, a.n, &best);
  SampleRowResult r;
  if (best.nan != 0) {
    r.status = SampleRowStatus::kNan;
    return r;
  }
  if (best.max == -kInf) {
    r.status = SampleRowStatus::kEmpty;
    return r;
  }
  r.id = best.index;
  r.prob = 1.0f;
  const float top = best.max * a.scale;
  if (!std::isfinite(top)) return r;  // an infinite logit, or a temperature near zero: nothing else has mass
  const bool pick_top = picks_top(a);
  if (pick_top && !a.want_prob) return r;
  const bool has_top_k = a.top_k > 0 && a.top_k < a.n, has_top_p = a.top_p < 1.0f;
  const bool only_top_p = !pick_top && has_top_p && !has_top_k && a.min_p <= 0.0f;
  const Masses m = scan_masses(k, a, top, !pick_top && (has_top_k || has_top_p), only_top_p, space);
  if (!pick_top) {
    if (!has_top_k && !has_top_p && a.min_p <= 0.0f) {
      r.id = sample_from_all(k, a, top, m, space);
    } else {
      const float cut = candidate_cut(a, top, m.total, has_top_k, has_top_p);
      if (only_top_p && long_list(m.total, cut)) {
        r.id = sample_from_nucleus(k, a, top, best.max, m.total, space);
        if (a.want_prob) r.prob = weight_prob(k, a, top, r.id, m.total.mass);
        return r;
      }
      const int64_t n = collect(k, a, cut, top, best.max, space);
      const uint64_t mass = truncate(a, n, has_top_k, has_top_p, m.total.mass, space);
      r.id = space.indices[walk(space.weights, n, scaled(a.random, mass))];
    }
  }
  if (a.want_prob) r.prob = weight_prob(k, a, top, r.id, m.total.mass);
  return r;
}

void kept_ids(const SampleKernels& k, const SampleRowArgs& a, const RowSpace& space, uint32_t* bits) {
  std::fill_n(bits, (a.n + 31) / 32, 0u);
  const auto keep = [&](int32_t id) { bits[id / 32] |= 1u << (id % 32); };
  MaxScan best;
  k.max_scan(a.x, a.n, &best);
  if (best.nan != 0 || best.max == -kInf) return;
  const float top = best.max * a.scale;
  if (!std::isfinite(top) || picks_top(a)) return keep(best.index);
  const bool has_top_k = a.top_k > 0 && a.top_k < a.n, has_top_p = a.top_p < 1.0f;
  const Masses m = scan_masses(k, a, top, has_top_k || has_top_p, false, space);
  const float cut = candidate_cut(a, top, m.total, has_top_k, has_top_p);
  const int64_t n = collect(k, a, cut, top, best.max, space);
  truncate(a, n, has_top_k, has_top_p, m.total.mass, space);
  for (int64_t i = 0; i < n; ++i) {
    if (space.weights[i] != 0) keep(space.indices[i]);
  }
}

}  // namespace tern::kernels
