#include "cuda/gemm/choice_grouped.h"

#include <algorithm>

#include "base/checked.h"
#include "cuda/gemm/fits.h"

namespace tern::cuda {
namespace {

bool wgmma_grouped_fits(const Gemm& g, bool aligned, const DeviceFacts& f) {
  return f.hopper() && f.sm90_files && aligned && mma_fits(g) && g.offsets != nullptr && g.k % 64 == 0 &&
         g.w_row == g.k;
}

// A token or two. Of more rows the blocks, of which some multiprocessors get two and others none while launches
// overlap, take longer than tiles dealt out as blocks end.
bool few_fits(const Gemm& g, const DeviceFacts& f) {
  constexpr int64_t kMostRows = 8;
  const int64_t tiles = std::min<int64_t>(g.groups, g.rows) + g.rows / kFewTokens;
  const bool k =
      g.k == 256 || g.k == 512 || g.k == 768 || g.k == 1024 || g.k == 1536 || g.k == 2048 || g.k == 2560 || g.k == 4096;
  return k && !f.deterministic && g.bias == nullptr && g.groups <= kMostGroups && g.rows <= kMostRows &&
         g.n % 16 == 0 && g.n <= (1 << 20) && ceil_div<int64_t>(tiles, f.multiprocessors) + 2 <= kMostFewTiles;
}

bool wide_fits(const Gemm& g, const DeviceFacts& f) {
  const int64_t wide = g.gated ? g.n / 2 : g.n;
  return g.bias == nullptr && (!g.gated || g.out_bf16) && g.groups <= kMostGroups && g.n % 16 == 0 &&
         g.k % kWideK == 0 && wide % 8 == 0 && reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && g.out_row % 8 == 0 &&
         (g.rows / 64 + g.groups) * ceil_div<int64_t>(g.n, kWideRows) < (1 << 30) && f.multiprocessors >= 2;
}

// Into how many parts k is cut: two where that lets all blocks run at once.
int grouped_split(const Gemm& g, const DeviceFacts& f) {
  if (f.deterministic) return 1;
  const int64_t tiles = ceil_div<int64_t>(g.n, 128) * std::min<int64_t>(g.groups, g.rows);
  return tiles <= f.multiprocessors && g.k / 64 >= 8 ? 2 : 1;
}

// On Hopper, where wgmma_grouped_fits().
GroupedChoice choose_hopper(const Gemm& g, const DeviceFacts& f) {
  const bool shared = g.rows / g.groups > kSharedRows;
  if (g.from != nullptr) {
    if (!g.gated || g.rows <= kFewPerGroup * g.groups || !wide_fits(g, f)) return {GroupedKernel::kApart};
    return {shared ? GroupedKernel::kGatherPairs : GroupedKernel::kGatherWide};
  }
  if (few_fits(g, f)) return {GroupedKernel::kFew};
  if (g.rows <= kFewPerGroup * g.groups) {
    const int split = grouped_split(g, f);
    return {split == 1 && 2 * g.rows <= g.groups ? GroupedKernel::kTiles32Three : GroupedKernel::kTiles32, split};
  }
  if (!wide_fits(g, f)) return {GroupedKernel::kTiles128};
  return {shared ? GroupedKernel::kPairs : GroupedKernel::kWide};
}

}  // namespace

bool weights_aligned(const void* const* weights, int groups) {
  return std::all_of(weights, weights + groups,
                     [](const void* w) { return reinterpret_cast<uintptr_t>(w) % 128 == 0; });
}

GroupedChoice choose_grouped(const Gemm& g, bool aligned, const DeviceFacts& f) {
  if (wgmma_grouped_fits(g, aligned, f)) return choose_hopper(g, f);
  return {mma_fits(g) ? GroupedKernel::kMma : GroupedKernel::kSimple};
}

GroupedChoice choose_grouped_gated(const Gemm& g, bool aligned, bool whole_f32, const DeviceFacts& f) {
  if (!whole_f32 || !wgmma_grouped_fits(g, aligned, f)) return {GroupedKernel::kApart};
  return choose_hopper(g, f);
}

int64_t grouped_sum_together(const Gemm& g, int multiprocessors) {
  return ceil_div<int64_t>(g.n / kSumColumns, multiprocessors);
}

// Of fewer rows kFew is ahead, which fills the ring of this product while the one before it runs. Two multiprocessors
// of three keep the memory busy.
bool grouped_sum_fits(const Gemm& g, const DeviceFacts& f) {
  constexpr int64_t kLeastPairs = 9, kMostTogether = 3;
  const int64_t blocks = grouped_sum_together(g, f.multiprocessors);
  return mma_fits(g) && g.offsets != nullptr && !g.gated && g.bias == nullptr && g.rows >= kLeastPairs &&
         g.rows <= kMostSumPairs && g.groups <= kNormFusedExperts && g.k % kSumPiece == 0 &&
         g.n % (4 * kSumColumns) == 0 && g.n / kSumColumns <= kNormFusedParts && blocks <= kMostTogether &&
         3 * g.n >= 2 * kSumColumns * blocks * f.multiprocessors;
}

}  // namespace tern::cuda
