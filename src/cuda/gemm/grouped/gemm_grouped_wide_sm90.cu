// Grouped products of more than a few rows per expert; those that read rows where moe_permute() left them are in
// gemm_grouped_gather_sm90.cu.
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

Status gemm_grouped_wide(GroupedKernel kernel, const Gemm& g, const void* const* weights, device::Stream stream) {
  if (kernel == GroupedKernel::kWide)
    return launch_tile<WideTile<80, 5, 1>>(g, weights, "gemm_wgmma_grouped_wide", stream);
  return launch_tile<WideTile<160, 4, 2>>(g, weights, "gemm_wgmma_grouped_pairs", stream);
}

}  // namespace tern::cuda
