// The draw with a cluster of blocks per row: each block has a piece of the row, and what they find is put together in
// global memory. Masses are integers and lists have no order, so the token is that of one block.
#include "cuda/launch.cuh"
#include "cuda/sample_draw.cuh"
#include "cuda/sample_team.h"

namespace tern::cuda {

// Of one row; everything in it is written anew for each draw.
struct TeamSpace {
  uint4 range[kMostTeam];  // of each block: RowRange in words
  uint32_t listed;
  unsigned long long bins[kBins], sums[kBins];
  uint2 list[kListed];
};

namespace {

// All threads of all blocks of the team; what they wrote is there for all of them.
__device__ __forceinline__ void team_sync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// What one block of kTeam has of a row.
template <int kTeam>
struct Piece {
  const float* x;  // the whole row
  int n, begin, end, rank;
  Chunks chunks;
  __device__ Piece(const float* row, int length, int r) : x(row), n(length), rank(r), chunks(length) {
    begin = min(n, chunks.count * rank / kTeam * chunks.size);
    end = min(n, chunks.count * (rank + 1) / kTeam * chunks.size);
  }
};

// The range of the whole row, from those of the pieces. Clears the shared masses.
template <int kTeam>
__device__ RowRange team_range(const Piece<kTeam>& p, TeamSpace& space, RowShared& sh) {
  RowRange own{{-INFINITY, 0x7fffffff, false}, INFINITY};
  if (p.begin < p.end) {
    own = row_range(p.x + p.begin, p.end - p.begin, sh);
    if (own.top.max > -INFINITY) own.top.index += p.begin;
  }
  if (threadIdx.x == 0) {
    space.range[p.rank] = make_uint4(__float_as_uint(own.top.max), static_cast<uint32_t>(own.top.index),
                                     __float_as_uint(own.least), own.top.nan ? 1 : 0);
  }
  for (int b = p.rank * kBins / kTeam + static_cast<int>(threadIdx.x); b < (p.rank + 1) * kBins / kTeam;
       b += kRowThreads) {
    space.bins[b] = space.sums[b] = 0;
  }
  if (p.rank == 0 && threadIdx.x == 0) space.listed = 0;
  team_sync();
  // A lane per block of the team.
  const uint4 word = __ldcg(&space.range[threadIdx.x % kTeam]);
  RowRange all{{__uint_as_float(word.x), static_cast<int>(word.y), word.w != 0}, __uint_as_float(word.z)};
#pragma unroll
  for (int d = 1; d < kTeam; d *= 2) {
    const float max = __shfl_xor_sync(0xffffffffu, all.top.max, d);
    const int index = __shfl_xor_sync(0xffffffffu, all.top.index, d);
    if (max > all.top.max || (max == all.top.max && index < all.top.index)) all.top.max = max, all.top.index = index;
    all.least = fminf(all.least, __shfl_xor_sync(0xffffffffu, all.least, d));
    all.top.nan |= __shfl_xor_sync(0xffffffffu, static_cast<int>(all.top.nan), d) != 0;
  }
  return all;
}

// sh.bins from the shared ones.
__device__ void read_masses(const unsigned long long* from, RowShared& sh) {
  __syncthreads();
  for (int b = threadIdx.x; b < kBins; b += kRowThreads) sh.bins[b] = __ldcg(from + b);
  __syncthreads();
}

// The end of the nucleus, for every block of the team.
template <int kTeam>
__device__ Nucleus team_nucleus(const Piece<kTeam>& p, const SlotParams& s, float top, const RowRange& range,
                                TeamSpace& space, DrawShared& sh) {
  const uint32_t base = ordered_bits(range.top.max);
  const Binning bin = binning(range, s.scale);
  fill_bins(p.x + p.begin, p.end - p.begin, s.scale, top, bin, sh.fast);
  for (int b = threadIdx.x; b < kBins; b += kRowThreads) {
    if (const unsigned long long mass = sh.fast.bin(b); mass != 0) atomicAdd(&space.bins[b], mass);
  }
  team_sync();
  read_masses(space.bins, sh.row);
  const unsigned long long limit = mass_limit(s.top_p, bins_mass(sh.row));
  find_bin(limit, sh.row);
  const unsigned long long before = sh.row.value;
  list_bin(p.x + p.begin, p.end - p.begin, s.scale, top, base, bin, static_cast<int>(sh.row.word), space.list,
           &space.listed);
  team_sync();
  const auto count = static_cast<int>(__ldcg(&space.listed));
  for (int i = threadIdx.x; i < min(count, kListed); i += kRowThreads) sh.fast.list[i] = __ldcg(space.list + i);
  __syncthreads();
  return nucleus_end(count, before, limit, sh.fast, sh.row);
}

// Only the first block's result counts.
template <int kTeam>
__device__ Draw team_draw(const Piece<kTeam>& p, const SlotParams& s, uint64_t random, TeamSpace& space,
                          DrawShared& sh) {
  const RowRange range = team_range(p, space, sh.row);
  const RowMax& best = range.top;
  if (best.nan) return {0, ops::kSampleNan, 0.0f};
  if (best.max == -INFINITY) return {0, ops::kSampleEmpty, 0.0f};
  const float top = __fmul_rn(best.max, s.scale);
  if (!isfinite(top) || s.greedy != 0 || s.top_k == 1 || s.top_p < 1e-5f) return {best.index, ops::kSampleOk, 1.0f};
  const uint32_t base = ordered_bits(best.max);
  Nucleus nucleus{true, 0xffffffffu, 0};
  if (s.top_p < 1.0f) nucleus = team_nucleus(p, s, top, range, space, sh);
  if (!nucleus.found) {
    if (p.rank != 0) return {};
    return draw(p.x, p.n, s, random, false, sh.fast, sh.row);
  }
  const NucleusWeight weight(s.scale, top, base, nucleus.last);
  sum_chunks(p.x, p.n, p.chunks, p.chunks.count * p.rank / kTeam, p.chunks.count * (p.rank + 1) / kTeam, space.sums,
             weight);
  team_sync();
  if (p.rank != 0) return {};
  read_masses(space.sums, sh.row);
  const unsigned long long mass = s.top_p < 1.0f ? nucleus.mass : bins_mass(sh.row);
  return {walk_chunks(p.x, p.n, p.chunks, __umul64hi(random, mass), sh.row, weight), ops::kSampleOk, 1.0f};
}

template <int kTeam>
__global__ void __launch_bounds__(kRowThreads)
    team_kernel(Rows<const float> logits, int64_t logit_rows, int n, const SampleRow* rows, SlotArrays slots,
                SampleOut out, TeamSpace* spaces) {
  extern __shared__ __align__(16) char memory[];
  auto& sh = *reinterpret_cast<DrawShared*>(memory);
  if (kTeam == kMostTeam) let_next_start();  // else its blocks would crowd together on what is free
  wait_for_previous();
  const auto row = static_cast<int>(blockIdx.x / kTeam), rank = static_cast<int>(blockIdx.x % kTeam);
  const SampleRow r = rows[row];
  if (r.logit_row < 0 || r.logit_row >= logit_rows || r.slot < 0 || r.slot >= slots.slots) return;
  const SlotParams s = slots.params[r.slot];
  const bool truncated = (s.top_k > 1 && s.top_k < n) || s.min_p > 0.0f;
  const float* x = logits.row(r.logit_row);
  if (truncated || out.probs != nullptr) {
    if (rank != 0) return;
    const Draw d = draw(x, n, s, row_random(r, s), out.probs != nullptr, sh.fast, sh.row);
    if (threadIdx.x == 0) finish_row(r, s, slots, d, out);
    return;
  }
  const Draw d = team_draw<kTeam>({x, n, rank}, s, row_random(r, s), spaces[row], sh);
  if (rank == 0 && threadIdx.x == 0) finish_row(r, s, slots, d, out);
}

}  // namespace

size_t team_workspace() { return kTeamRows * sizeof(TeamSpace); }

bool team_fits(const ops::SampleParams& p, device::Stream stream) {
  return state(stream).arch >= 90 && waits_compiled() && p.workspace != nullptr && p.rows.count <= kTeamRows &&
         p.rows.logits.dim[1] >= 4096;
}

namespace {

template <int kTeam>
Status launch_team(const ops::SampleParams& p, int64_t logit_rows, device::Stream stream) {
  constexpr const char* kName = "sample_team";
  const size_t bytes = draw_bytes(p.rows.count * kTeam, stream);
  if (Status s = allow_shared(kName, team_kernel<kTeam>, bytes); !s.ok()) return s;
  const SampleOut out{p.ids.as<int32_t>(), p.status.as<int32_t>(), p.probs.empty() ? nullptr : p.probs.as<float>()};
  const Shape shape{static_cast<unsigned>(p.rows.count * kTeam), kRowThreads, bytes, kTeam};
  return launch(stream, kName, shape, team_kernel<kTeam>, rows_of<const float>(p.rows.logits), logit_rows,
                static_cast<int>(p.rows.logits.dim[1]), p.rows.rows, p.rows.slots, out,
                static_cast<TeamSpace*>(p.workspace));
}

}  // namespace

Status sample_team(const ops::SampleParams& p, int64_t logit_rows, device::Stream stream) {
  const int64_t blocks = state(stream).multiprocessors;
  if (p.rows.count * kMostTeam <= blocks) return launch_team<kMostTeam>(p, logit_rows, stream);
  if (p.rows.count * 4 <= blocks) return launch_team<4>(p, logit_rows, stream);
  return launch_team<2>(p, logit_rows, stream);
}

}  // namespace tern::cuda
