// Tiles of gemm_large_tile.cuh with a gate.
#include "cuda/gemm/sm90/gemm_large_tile_run.cuh"

namespace tern::cuda {

Status gemm_large_tile_gated(const Gemm& g, const void* weight, device::Stream stream) {
  return run_tile<3, true>(g, weight, 1, stream);
}

}  // namespace tern::cuda
