// Tiles of gemm_large_tile.cuh with 128 rows of the weight.
#include "cuda/gemm/sm90/gemm_large_tile_run.cuh"

namespace tern::cuda {

Status gemm_large_tile_128(const Gemm& g, const void* weight, int split, device::Stream stream) {
  return run_tile<2, false>(g, weight, split, stream);
}

}  // namespace tern::cuda
