// The last products of a few tokens' experts and their weighed sum, with the first part of the norm behind it
// (norm_fusion.h) in one: a block has 16 columns of all experts that some token chose, so that every block reads the
// same number of bytes and nothing is handed from block to block. Its warps deal the experts' k out among themselves;
// each keeps a ring of its own filled and waits for nobody. Which experts there are is known, where the products before
// leave it settled, while those still run: the ring is then full before the first row can be read.
#include <algorithm>

#include "cuda/gemm/epilogues/norm_epilogue.cuh"
#include "cuda/gemm/gemm.h"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"

namespace tern::cuda {
namespace {

constexpr int kColumns = kSumColumns, kTokens = 8;
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kPiece = kSumPiece;
constexpr int kWeightBytes = kColumns * kPiece * 2, kTokenBytes = kPiece * 2;  // of a piece
constexpr int kSlots = 6;  // pieces of a warp that are on their way; fewer where blocks share a multiprocessor
constexpr int64_t kMostPairs = kMostSumPairs;
// Blocks of the launch before leave multiprocessors one by one, and a second block of this one shall find no room where
// a first one is.
constexpr size_t kAlone = 115 << 10;

struct SumShared {
  int found[kWarps];                                           // experts with rows among those that a warp looked at
  int expert[kMostPairs], begin[kMostPairs], end[kMostPairs];  // experts with rows, and their rows
  int pair_row[kMostPairs];
  float pair_weight[kMostPairs];
  int16_t row[kMostPairs][kTokens];  // of a token for one of these experts; below 0: it did not choose it
  float weight[kMostPairs][kTokens];
};

// Finds the experts that have rows, and how many they are. All threads, one per expert.
__device__ __forceinline__ int find_experts(SumShared& sh, const Gemm& g, const ExpertPicks& picks) {
  const int e = threadIdx.x, lane = e & 31, warp = e / 32, pairs = static_cast<int>(g.rows) * picks.top_k;
  const int begin = e < g.groups ? g.offsets[e] : 0, end = e < g.groups ? g.offsets[e + 1] : 0;
  if (e < pairs) {
    const int64_t t = e / picks.top_k, j = e % picks.top_k;
    sh.pair_row[e] = picks.row_of[t * picks.row_of_row + j];
    sh.pair_weight[e] = picks.weights[t * picks.weights_row + j];
  }
  const unsigned who = __ballot_sync(0xffffffffu, end > begin);
  if (lane == 0) sh.found[warp] = __popc(who);
  __syncthreads();
  int at = __popc(who & ((1u << lane) - 1)), all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) at += w < warp ? sh.found[w] : 0, all += sh.found[w];
  if (end > begin && at < kMostPairs) sh.expert[at] = e, sh.begin[at] = begin, sh.end[at] = end;
  __syncthreads();
  return min(all, static_cast<int>(kMostPairs));
}

// Finds what every token has of them. A token that names an expert twice has the same row twice.
__device__ __forceinline__ void find_rows(SumShared& sh, const ExpertPicks& picks, int experts) {
  for (int i = threadIdx.x; i < experts * kTokens; i += kThreads) {
    const int e = i / kTokens, t = i % kTokens;
    int found = -1;
    float weight = 0.0f;
    for (int j = t * picks.top_k; j < min((t + 1) * picks.top_k, picks.pairs); ++j) {
      const int row = sh.pair_row[j];
      if (row >= sh.begin[e] && row < sh.end[e]) found = row, weight += sh.pair_weight[j];
    }
    sh.row[e][t] = static_cast<int16_t>(found), sh.weight[e][t] = weight;
  }
}

// Piece number `piece` of expert number `expert` of those found.
struct PiecePlace {
  int expert, piece;
  __device__ __forceinline__ void next(int per) {
    if (++piece == per) piece = 0, ++expert;
  }
};

// What a warp reads: `count` pieces from `first` on.
struct SumIterator {
  const SumShared& sh;
  const Gemm& g;
  const void* const* weights;
  int per, count;  // pieces of an expert, of this warp
  PiecePlace first;

  __device__ __forceinline__ SumIterator(const SumShared& shared, const Gemm& gemm, const void* const* table,
                                         int experts)
      : sh(shared), g(gemm), weights(table), per(static_cast<int>(gemm.k) / kPiece) {
    const int warp = static_cast<int>(threadIdx.x) / 32, all = experts * per;
    const int begin = all * warp / kWarps;
    count = all * (warp + 1) / kWarps - begin, first = {begin / per, begin % per};
  }
  // Of this block's first column.
  __device__ __forceinline__ const bf* weight(const PiecePlace& at) const {
    return static_cast<const bf*>(weights[sh.expert[at.expert]]) + int64_t{blockIdx.x} * kColumns * g.w_row +
           at.piece * kPiece;
  }
  // 16-byte words of a row lie such that eight lanes that read a piece fall into different banks.
  __device__ __forceinline__ void copy_weight(char* slot, const PiecePlace& at) const {
    const int lane = threadIdx.x & 31, word = lane % 8;
    const bf* from = weight(at) + word * 8;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const int row = lane / 8 + 4 * i;
      copy_async(slot + row * 128 + (word ^ (row % 8)) * 16, from + row * g.w_row, 16);
    }
  }
  __device__ __forceinline__ void copy_tokens(char* slot, const PiecePlace& at) const {
    const int lane = threadIdx.x & 31, word = lane % 8;
    const bf* from = static_cast<const bf*>(g.x) + at.piece * kPiece + word * 8;
    for (int t = lane / 8; t < g.rows; t += 4) {
      const int row = sh.row[at.expert][t];
      copy_async(slot + kWeightBytes + t * kTokenBytes + (word ^ (t % 2 * 4)) * 16, from + max(row, 0) * g.x_row,
                 row < 0 ? 0 : 16);
    }
  }
  // Brings up to `pieces` pieces from `at` on into the second-level cache.
  __device__ __forceinline__ void bring(PiecePlace at, int pieces) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const int lane = threadIdx.x & 31;
    while (pieces > 0) {
      const int run = min(pieces, per - at.piece);
      if (lane < kColumns) {
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(weight(at) + lane * g.w_row),
                     "r"(run * kTokenBytes)
                     : "memory");
      }
      pieces -= run, at = {at.expert + 1, 0};
    }
#endif
  }
};

// The sums of one expert, and of all of them: two rows of the weight times two tokens.
struct ExpertSums {
  float acc[2][4] = {}, total[4] = {};
  // A lane's values of k are eight neighbours of every 32: their order is free as long as both sides have the same.
  __device__ __forceinline__ void multiply(const char* slot, int row, int tokens) {
    const int lane = threadIdx.x & 31, t = lane / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int word = h * 4 + lane % 4;
      const char* at = slot + row * 128 + (word ^ row) * 16;
      const uint4 a = *reinterpret_cast<const uint4*>(at), c = *reinterpret_cast<const uint4*>(at + 8 * 128);
      uint4 b = make_uint4(0, 0, 0, 0);
      if (t < tokens) {
        b = *reinterpret_cast<const uint4*>(slot + kWeightBytes + t * kTokenBytes + (word ^ (t % 2 * 4)) * 16);
      }
      mma(acc[h], {a.x, c.x, a.y, c.y}, {b.x, b.y});
      mma(acc[h], {a.z, c.z, a.w, c.w}, {b.z, b.w});
    }
  }
  // What is no number in the weight of an expert must not reach tokens that did not choose it.
  __device__ __forceinline__ void weigh(const SumShared& sh, int expert) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int t = static_cast<int>(threadIdx.x) % 4 * 2 + j;
      const float weight = sh.weight[expert][t];
      if (sh.row[expert][t] >= 0) {
        total[j] += weight * (acc[0][j] + acc[1][j]);
        total[2 + j] += weight * (acc[0][2 + j] + acc[1][2 + j]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[0][i] = acc[1][i] = 0.0f;
  }
};

// The pieces of a warp, whose weights are on their way for the first kDepth of them.
template <int kDepth>
__device__ __forceinline__ void add_pieces(ExpertSums& sums, const SumIterator& walk, char* ring, int slot_bytes,
                                           int row) {
  PiecePlace ahead = walk.first, at = walk.first;
  for (int i = 0; i < min(kDepth, walk.count); ++i, ahead.next(walk.per)) {
    walk.copy_tokens(ring + i * slot_bytes, ahead);
  }
  copy_commit();
  copy_wait<0>();
  __syncwarp();
  int s = 0;
  for (int i = 0; i < walk.count; ++i, at.next(walk.per)) {
    if (i >= kDepth) {
      copy_wait<kDepth - 1>();
      __syncwarp();
    }
    char* const slot = ring + s * slot_bytes;
    sums.multiply(slot, row, static_cast<int>(walk.g.rows));
    __syncwarp();
    if (i + kDepth < walk.count) {
      walk.copy_weight(slot, ahead), walk.copy_tokens(slot, ahead);
      ahead.next(walk.per);
    }
    copy_commit();
    if (at.piece + 1 == walk.per || i + 1 == walk.count) sums.weigh(walk.sh, at.expert);
    if (++s == kDepth) s = 0;
  }
}

// g.rows: tokens.
template <int kDepth>
__global__ void __launch_bounds__(kThreads, kDepth == kSlots ? 2 : 3)
    sum_kernel(const Gemm g, const ExpertPicks picks, const __grid_constant__ WeightTable<kNormFusedExperts> table) {
  extern __shared__ uint4 memory[];
  __shared__ SumShared sh;
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const int slot_bytes = kWeightBytes + static_cast<int>(g.rows) * kTokenBytes;
  const auto ring_of = [&](int w) { return reinterpret_cast<char*>(memory) + w * kDepth * slot_bytes; };
  char* const ring = ring_of(warp);
  // Eight lanes in turn have rows of a piece that fall into different banks.
  const int row = lane / 8 + lane / 4 % 2 * 4;
  const int64_t col = int64_t{blockIdx.x} * kColumns + row;
  if (warp == 0) bring_parameters(g, picks, table);
  if (!picks.settled) wait_for_previous();
  const int experts = find_experts(sh, g, picks);
  const SumIterator walk(sh, g, table.w, experts);
  PiecePlace ahead = walk.first;
  for (int i = 0; i < min(kDepth, walk.count); ++i, ahead.next(walk.per)) {
    walk.copy_weight(ring + i * slot_bytes, ahead);
  }
  if (picks.settled) walk.bring(ahead, min(kDepth, walk.count - kDepth));
  find_rows(sh, picks, experts);
  const float2 weights = make_float2(norm_weight(g.after, col), norm_weight(g.after, col + 8));
  __syncthreads();
  wait_for_previous();
  // After the wait: the next kernel's blocks take no room from those of the one before.
  let_next_start();
  NormQuad norm;
  if (warp == 0) norm.load(g, lane % 4 * 2, col);
  ExpertSums sums;
  add_pieces<kDepth>(sums, walk, ring, slot_bytes, row);
  reinterpret_cast<float4*>(ring)[lane] = make_float4(sums.total[0], sums.total[1], sums.total[2], sums.total[3]);
  __syncthreads();
  if (warp != 0) return;
  float4 sum = reinterpret_cast<const float4*>(ring)[lane];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) {
    const float4 v = reinterpret_cast<const float4*>(ring_of(w))[lane];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  norm.epilogue(g, lane % 4 * 2, col, weights, sum);
}

template <int kDepth>
Status launch_sum(const Gemm& g, const ExpertPicks& picks, const void* const* weights, device::Stream stream) {
  WeightTable<kNormFusedExperts> table{};
  std::copy_n(weights, g.groups, table.w);
  size_t bytes = static_cast<size_t>(kWarps * kDepth) * (kWeightBytes + static_cast<size_t>(g.rows) * kTokenBytes);
  if (kDepth == kSlots) bytes = std::max(bytes, kAlone);
  return launch(stream, "gemm_grouped_sum", {static_cast<unsigned>(g.n / kColumns), kThreads, bytes},
                sum_kernel<kDepth>, g, picks, table);
}

}  // namespace

Status gemm_grouped_sum(const Gemm& g, const ExpertPicks& picks, const void* const* weights, device::Stream stream) {
  static_assert(kThreads >= kNormFusedExperts && kThreads >= kMostPairs);
  switch (grouped_sum_together(g, state(stream).multiprocessors)) {
    case 1:
      return launch_sum<kSlots>(g, picks, weights, stream);
    case 2:
      return launch_sum<kSlots / 2>(g, picks, weights, stream);
    default:
      return launch_sum<kSlots / 3>(g, picks, weights, stream);
  }
}

}  // namespace tern::cuda
