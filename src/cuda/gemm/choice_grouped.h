// Which kernel takes products with one weight per expert or per head: a pure function, as choose_gemm() (choice.h).
// Cases: tests/choice/grouped_test.cc.
#pragma once

#include "cuda/gemm/gemm_args.h"
#include "cuda/runtime/device_facts.h"

namespace tern::cuda {

enum class GroupedKernel : uint8_t {
  kSimple,  // any types
  kMma,     // tensor cores, any GPU
  // On Hopper, one weight per expert.
  kFew,           // a token or two: every multiprocessor has an equal share of the weights
  kTiles32,       // few rows per expert: tiles of 128 rows of the weight by 32 tokens, two blocks per multiprocessor
  kTiles32Three,  // three, where few tiles leave a multiprocessor with gaps between them
  kTiles128,      // many rows of shapes that the wide kernels cannot take
  kWide,          // more than eight rows per expert: tiles of 256 rows of the weight by 80 tokens
  kPairs,         // many rows: 160 tokens, two blocks share what they read of the weight
  kGatherWide,    // the same two, of rows that are read by their places among the tokens (Gemm::from)
  kGatherPairs,
  kApart,  // choose_grouped_gated() alone: no kernel has the gate (or can read rows by Gemm::from)
};

struct GroupedChoice {
  GroupedKernel kernel;
  int split = 1;  // parts of k
  bool gathers() const { return kernel == GroupedKernel::kGatherWide || kernel == GroupedKernel::kGatherPairs; }
};

// `aligned`: weights_aligned() of all weights.
GroupedChoice choose_grouped(const Gemm& g, bool aligned, const DeviceFacts& f);
// Of gate and up with the gate behind them. `whole_f32`: as for choose_gated().
GroupedChoice choose_grouped_gated(const Gemm& g, bool aligned, bool whole_f32, const DeviceFacts& f);
// Whether the copy engine can read these weights.
bool weights_aligned(const void* const* weights, int groups);

inline constexpr int64_t kFewPerGroup = 8;  // rows up to which, on average, kernels for few are ahead
inline constexpr int64_t kSharedRows = 72;  // per expert on average: above, pairs of blocks share the weight
inline constexpr int kMostGroups = 256;     // experts of kFew and of the wide kernels
inline constexpr int kMostFewTiles = 16;    // of kFew: row tiles that a block's share touches
inline constexpr int kFewTokens = 8;        // of such a tile
inline constexpr int kWideRows = 256, kWideK = 64;

// The products of few rows of experts, weighed and added up, with the first part of a norm behind them
// (fusion/norm_fusion.h): not in deterministic mode. g.rows: of all experts.
bool grouped_sum_fits(const Gemm& g, const DeviceFacts& f);
inline constexpr int kSumColumns = 16, kSumPiece = 64;  // of a block; values of k that are on their way together
inline constexpr int64_t kMostSumPairs = 32;            // of a token and an expert
int64_t grouped_sum_together(const Gemm& g, int multiprocessors);  // blocks of a multiprocessor

}  // namespace tern::cuda
