// Gate and up of experts with more than a few rows each, whose rows are read by their places among the tokens: nothing
// is copied into the experts' order before.
#include "cuda/gemm/grouped/gemm_grouped_wide.cuh"

namespace tern::cuda {
namespace {

template <class Tile>
Status launch_tile(const Gemm& g, const void* const* weights, const char* name, device::Stream stream) {
  if (state(stream).deterministic) return launch_wide<Tile, WideOut<bf, true, true>, true>(g, weights, name, stream);
  return launch_wide<Tile, WideOut<bf, true, false>, true>(g, weights, name, stream);
}

}  // namespace

Status gemm_grouped_gather(GroupedKernel kernel, const Gemm& g, const void* const* weights, device::Stream stream) {
  if (kernel == GroupedKernel::kGatherWide)
    return launch_tile<WideTile<80, 5, 1>>(g, weights, "gemm_wgmma_gather_wide", stream);
  return launch_tile<WideTile<160, 4, 2>>(g, weights, "gemm_wgmma_gather_pairs", stream);
}

}  // namespace tern::cuda
