// Grouped products of more than a few rows per expert; those that read rows where moe_permute() left them are in
// gemm_grouped_gather_sm90.cu.
#include "cuda/gemm/grouped/gemm_grouped.h"
#include "cuda/gemm/grouped/gemm_grouped_wide.cuh"

namespace tern::cuda {
namespace {

template <class Tile>
Status launch_tile(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  if (g.gated && state(stream).deterministic) {
    return launch_wide<Tile, WideOut<bf, true, true>>(g, weights, name, stream);
  }
  if (g.gated) return launch_wide<Tile, WideOut<bf, true, false>>(g, weights, name, stream);
  if (g.out_bf16) return launch_wide<Tile, WideOut<bf, false, false>>(g, weights, name, stream);
  return launch_wide<Tile, WideOut<float, false, false>>(g, weights, name, stream);
}

}  // namespace

bool grouped_wide_fits(const Gemm& g, device::Stream stream) {
  const int64_t wide = g.gated ? g.n / 2 : g.n;
  return g.bias == nullptr && (!g.gated || g.out_bf16) && g.groups <= kMostGroups && g.n % 16 == 0 && g.k % kK == 0 &&
         wide % 8 == 0 && reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && g.out_row % 8 == 0 &&
         (g.rows / 64 + g.groups) * blocks_for(g.n, kRows) < (1 << 30) && state(stream).multiprocessors >= 2;
}

Status gemm_grouped_wide(const Gemm& g, const void* const* weights, device::Stream stream) {
  if (g.from != nullptr) return gemm_grouped_gather(g, weights, stream);
  const int64_t rows = g.rows / g.groups;
  if (rows <= kSharedRows) return launch_tile<WideTile<80, 5, 1>>(g, weights, "gemm_wgmma_grouped_wide", stream);
  return launch_tile<WideTile<160, 4, 2>>(g, weights, "gemm_wgmma_grouped_pairs", stream);
}

}  // namespace tern::cuda
