// The draw of a row without top-k and min-p in three passes over its logits: the largest, masses by distance from it,
// masses by place together with the few entries around the end of the nucleus (sample_chunks.cuh). Masses are the same
// integers as in sample_row.cuh, so the token is the same; only how the end of the nucleus is found differs. A cluster
// of blocks has a piece of the row each; what they find is put together in every block alike.
#pragma once

#include "cuda/ptx/cluster.cuh"
#include "cuda/sampling/sample_piece.cuh"

namespace tern::cuda {

inline constexpr int kSlots = 256;     // by distance from the top; a copy per lane, so that lanes never meet
inline constexpr int kListed = 2720;   // entries of the slot in which the nucleus ends
inline constexpr int kChunks = 1024;   // by place, at most; of one block
inline constexpr float kDeep = 22.0f;  // exp(-kDeep) * 2^30 rounds to zero

struct Crossing {
  int at;
  unsigned long long before, mass;   // of the values before it, of itself
  unsigned long long wanted, total;  // limit(total), sum of all values
};

template <int kClusterSize>
struct alignas(16) DrawShared {
  RowShared row;
  unsigned long long chunks[kChunks];  // masses by place
  union {
    uint32_t low[kSlots * 32];  // of a slot's masses, a copy per lane; carries of all lanes are in `high`
    struct {
      unsigned long long entry[kListed];  // offset from the top above, weight below
      uint32_t place[kListed];            // from the piece's first value on
    } list;
  };
  uint32_t high[kSlots];
  uint32_t listed;
  uint32_t cut[2];
  unsigned long long random;
  Crossing found;
  unsigned long long best[kRowWarps], rest[kRowWarps];  // what each warp found in its first pass
  unsigned long long masses[kSlots];
  // Of every block of the cluster, told by itself.
  unsigned long long cluster_best[kClusterSize], cluster_rest[kClusterSize], cluster_mass[kClusterSize],
      cluster_listed[kClusterSize];
  unsigned long long gathered[kClusterSize > 1 ? kListed : 1];
};

__device__ __forceinline__ float max_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a != a || b != b ? a + b : fmaxf(a, b);
#endif
}

struct RowRange {
  uint32_t most;   // ordered bits of the largest value
  uint32_t least;  // of the smallest one among the largest of each quad
  int quad;        // the first that has `most`
  bool nan;
};

// From what the lanes of a warp have: best: ordered bits and the complement of the quad; rest: ordered bits of the
// least, 1 in bit 32 for a value that is not a number.
__device__ __forceinline__ void warp_best(unsigned long long& best, unsigned long long& rest) {
  const auto value = static_cast<uint32_t>(best >> 32);
  const uint32_t most = __reduce_max_sync(0xffffffffu, value);
  const uint32_t quad = __reduce_max_sync(0xffffffffu, value == most ? static_cast<uint32_t>(best) : 0u);
  const uint32_t least = ~__reduce_max_sync(0xffffffffu, ~static_cast<uint32_t>(rest));
  const bool nan = __ballot_sync(0xffffffffu, (rest >> 32) != 0) != 0;
  best = static_cast<unsigned long long>(most) << 32 | quad;
  rest = static_cast<unsigned long long>(nan ? 1 : 0) << 32 | least;
}

// The first pass. Copies what there is room for to shared memory.
template <int kClusterSize>
__device__ RowRange cluster_range(Piece& p, int room, int rank, DrawShared<kClusterSize>& sh) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float most = -INFINITY, least = INFINITY;
  int quad = 0;
  const int kept = p.keep(room);
  for_quads(p, [&](int j, const float4& v) {
    if (j >= p.end) return;
    if (j - p.begin < kept) p.kept[j - p.begin] = v;
    const float m = max_or_nan(max_or_nan(v.x, v.y), max_or_nan(v.z, v.w));
    if (m > most) quad = j;
    most = max_or_nan(most, m);
    least = fminf(least, m);
  });
  p.held = kept;
  const bool nan = most != most;
  unsigned long long best =
      static_cast<unsigned long long>(nan ? 0 : ordered_bits(most)) << 32 | ~static_cast<uint32_t>(quad);
  unsigned long long rest = static_cast<unsigned long long>(nan ? 1 : 0) << 32 | ordered_bits(least);
  warp_best(best, rest);
  if (lane == 0) sh.best[warp] = best, sh.rest[warp] = rest;
  __syncthreads();
  if (kClusterSize == 1 || warp == 0) {
    best = sh.best[lane], rest = sh.rest[lane];
    warp_best(best, rest);
  }
  if constexpr (kClusterSize > 1) {
    if (threadIdx.x < kClusterSize) {
      cluster_store<kClusterSize>(sh.cluster_best + rank, lane, best),
          cluster_store<kClusterSize>(sh.cluster_rest + rank, lane, rest);
    }
    cluster_barrier<kClusterSize>();
    best = sh.cluster_best[lane % kClusterSize], rest = sh.cluster_rest[lane % kClusterSize];
    warp_best(best, rest);
  }
  return {static_cast<uint32_t>(best >> 32), static_cast<uint32_t>(rest),
          static_cast<int>(~static_cast<uint32_t>(best)), (rest >> 32) != 0};
}

// Which slot a value belongs to; never decreases as values do.
struct Binning {
  float scale, top, per_slot;
  // Slots reach down to where nearly all values are, or to where no weight is left.
  __device__ Binning(float s, float t, uint32_t least) : scale(s), top(t) {
    const float width = fminf(__fmul_rn(1.5f, -distance(from_ordered(least))), kDeep);
    per_slot = width > 0.0f ? static_cast<float>(kSlots - 1) / width : 0.0f;
  }
  __device__ __forceinline__ float distance(float x) const { return __fsub_rn(__fmul_rn(x, scale), top); }
  // 128 times the slot: where its copies begin in DrawShared::low, in bytes.
  __device__ __forceinline__ uint32_t place(float d) const {
    constexpr float kWhole = 33554432.0f;  // from here on floats are multiples of 4, and their bits shift out
    return __float_as_uint(fminf(__fmaf_rn(d, -4.0f * per_slot, kWhole), kWhole + 4.0f * (kSlots - 1))) << 7;
  }
};

// Before masses are added. All threads.
template <int kClusterSize>
__device__ __forceinline__ void clear_masses(DrawShared<kClusterSize>& sh) {
  for (int i = threadIdx.x; i < kSlots * 32; i += kRowThreads) sh.low[i] = 0;
  if (threadIdx.x < kSlots) sh.high[threadIdx.x] = 0;
}
// The word so many bytes behind `base`, in shared memory, before v was added to it.
__device__ __forceinline__ uint32_t add_shared(uint32_t* base, uint32_t bytes, uint32_t v) {
#if defined(__CUDA_ARCH__)
  uint32_t before = 0;
  asm volatile("atom.shared.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(base)) + bytes), "r"(v));
  return before;
#else
  return atomicAdd(reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(base) + bytes), v);
#endif
}
// The masses of four values; weights and places are found first, so that nothing waits for the one before it.
template <int kClusterSize>
__device__ __forceinline__ void add_masses(DrawShared<kClusterSize>& sh, const Binning& bin, const float4& v) {
  const float d[4] = {bin.distance(v.x), bin.distance(v.y), bin.distance(v.z), bin.distance(v.w)};
  if (!(fmaxf(fmaxf(d[0], d[1]), fmaxf(d[2], d[3])) > -kDeep)) return;
  uint32_t* own = sh.low + threadIdx.x % 32;
  uint32_t weight[4], place[4], before[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float near = fmaxf(d[i], -kDeep);
    weight[i] = weight_at(near), place[i] = bin.place(near);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) before[i] = add_shared(own, place[i], weight[i]);
  bool carry = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) carry |= before[i] + weight[i] < weight[i];
  if (!carry) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (before[i] + weight[i] < weight[i]) atomicAdd(&sh.high[place[i] / 128], 1u);
  }
}

// The masses of the slots in the whole row, into bins; kRowThreads of them, those behind the last slot are 0. A thread
// may read its own before the next barrier.
template <int kClusterSize>
__device__ void sum_masses(DrawShared<kClusterSize>& sh) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSlots / kRowWarps; ++i) {
    const int slot = warp * (kSlots / kRowWarps) + i;
    const uint32_t v = sh.low[32 * slot + lane];
    const auto low = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(v & 0xffffu)));
    const auto high = static_cast<uint32_t>(__reduce_add_sync(0xffffffffu, static_cast<int>(v >> 16)));
    const unsigned long long mass =
        low + (static_cast<unsigned long long>(high) << 16) + (static_cast<unsigned long long>(sh.high[slot]) << 32);
    if (lane == 0) sh.masses[slot] = mass;
  }
  cluster_barrier<kClusterSize>();
  unsigned long long sum = 0;
  if (threadIdx.x < kSlots) {
#pragma unroll
    for (int r = 0; r < kClusterSize; ++r) sum += cluster_load<kClusterSize>(sh.masses + threadIdx.x, r);
  }
  sh.row.bins[threadIdx.x] = sum;
}

__device__ __forceinline__ unsigned long long warp_running_sum(unsigned long long v) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const unsigned long long other = __shfl_up_sync(0xffffffffu, v, d);
    if (static_cast<int>(threadIdx.x % 32) >= d) v += other;
  }
  return v;
}

// Where the running sum of value(0), value(1) and so on reaches limit(sum of all), which is at least 1 and at most that
// sum; kRowThreads values. One warp looks for it: what all did would be done by 32. Sums must not be read any more, and
// others may have written no values but the thread's own since the last barrier.
template <class Value, class Limit>
__device__ Crossing find_crossing(RowShared& sh, Crossing& found, const Value& value, const Limit& limit) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned long long part = warp_sum64(value(static_cast<int>(threadIdx.x)));
  if (lane == 0) sh.sums[warp] = part;
  __syncthreads();
  if (warp == 0) {
    const unsigned long long mass = sh.sums[lane], run = warp_running_sum(mass);
    const unsigned long long total = __shfl_sync(0xffffffffu, run, 31), wanted = limit(total);
    const int first = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, run >= wanted))) - 1;
    const int i = 32 * first + lane;
    const unsigned long long v = value(i), upto = __shfl_sync(0xffffffffu, run - mass, first) + warp_running_sum(v);
    const int at = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, upto >= wanted))) - 1;
    if (lane == at) found = {i, upto - v, v, wanted, total};
  }
  __syncthreads();
  return found;
}

// Ordered bits of the smallest value in `slot` or before it, by one warp; slot -1: of what is above all values.
__device__ inline uint32_t slot_end(const Binning& bin, uint32_t most, int slot) {
  if (slot < 0) return most + 1;
  const auto inside = [&](uint32_t bits) {
    const float d = bin.distance(from_ordered(bits));
    return __ballot_sync(0xffffffffu, d > -kDeep && bin.place(d) <= 128u * slot);
  };
  const uint32_t lane = threadIdx.x % 32;
  uint32_t low = ordered_bits(-INFINITY), high = most;  // not in it, in it
  // Arithmetic says where that is but for a few roundings.
  const uint32_t near =
      ordered_bits((bin.top - (static_cast<float>(slot) + 0.5f) / bin.per_slot) / bin.scale) - 16 * 32;
  if (near > low && near < most && most - near > 32 * 32) {
    const unsigned in = inside(near + 32 * lane);
    if (in != 0 && (in & 1u) == 0)
      high = near + 32 * static_cast<uint32_t>(__ffs(static_cast<int>(in)) - 1), low = high - 32;
  }
  while (high - low > 1) {
    const uint32_t step = (high - low - 1) / 32 + 1, reach = (lane + 1) * step;
    const auto first =
        static_cast<uint32_t>(__ffs(static_cast<int>(inside(reach < high - low ? low + reach : high))) - 1);
    if (const uint32_t found = low + (first + 1) * step; found < high) high = found;
    low += first * step;
  }
  return high;
}

// Where a nucleus ends: entries from `high` on stay, entries below `low` do not, those between are listed.
struct Cut {
  uint32_t low, high;               // ordered bits
  unsigned long long before, mass;  // of the entries from `high` on, of those between
  unsigned long long limit, total;  // what the nucleus must have at least, the mass of the row
};

// Narrows a cut between whose ends there are more entries than the list has room for. All blocks.
template <int kClusterSize>
__device__ void narrow(const Piece& p, const Binning& bin, Cut& cut, DrawShared<kClusterSize>& sh) {
  int shift = 0;
  while (((cut.high - 1 - cut.low) >> shift) >= kSlots) ++shift;
  cluster_barrier<kClusterSize>();  // masses may still be read
  clear_masses(sh);
  __syncthreads();
  for_quads_back(p, [&](int, const float4& v) {
    const auto add = [&](float x) {
      const uint32_t bits = ordered_bits(x);
      if (bits < cut.low || bits >= cut.high) return;
      const uint32_t slot = (cut.high - 1 - bits) >> shift, w = weight_of(x, bin.scale, bin.top);
      if (atomicAdd(&sh.low[32 * slot + threadIdx.x % 32], w) > 0xffffffffu - w) atomicAdd(&sh.high[slot], 1u);
    };
    add(v.x), add(v.y), add(v.z), add(v.w);
  });
  sum_masses(sh);
  const Crossing c = find_crossing(
      sh.row, sh.found, [&](int i) { return sh.row.bins[i]; },
      [&](unsigned long long) { return cut.limit - cut.before; });
  const uint32_t slot = static_cast<uint32_t>(c.at) << shift, size = 1u << shift;
  cut.high -= slot;
  if (cut.high - cut.low > size) cut.low = cut.high - size;
  cut.before += c.before, cut.mass = c.mass;
}

// The second pass: the cut for a nucleus of limit(mass of the row). All blocks. A warp that has nothing else to do
// calls aside().
template <int kClusterSize, class Limit, class Aside>
__device__ Cut find_cut(const Piece& p, const Binning& bin, uint32_t most, DrawShared<kClusterSize>& sh,
                        const Limit& limit, const Aside& aside) {
  for_quads_back(p, [&](int, const float4& v) { add_masses(sh, bin, v); });
  sum_masses(sh);
  const Crossing c = find_crossing(
      sh.row, sh.found, [&](int i) { return sh.row.bins[i]; }, limit);
  if (threadIdx.x < 64) {
    const uint32_t end = slot_end(bin, most, threadIdx.x < 32 ? c.at : c.at - 1);
    if (threadIdx.x % 32 == 0) sh.cut[threadIdx.x / 32] = end;
  } else if (threadIdx.x < 96) {
    aside();
  }
  __syncthreads();
  Cut cut{sh.cut[0], sh.cut[1], c.before, c.mass, c.wanted, c.total};
  // Entries between weigh no less than the one at the lower end; those without weight are not listed.
  const auto many = [&] {
    const uint32_t least = weight_of(from_ordered(cut.low), bin.scale, bin.top);
    return cut.high - cut.low > 1 && cut.mass / kListed >= max(least, 1u);
  };
  while (many()) narrow(p, bin, cut, sh);
  return cut;
}

}  // namespace tern::cuda
