// Tiles of gemm_large_tile.cuh with 192 rows of the weight.
#include "cuda/gemm/sm90/gemm_large_tile_run.cuh"

namespace tern::cuda {

Status gemm_large_tile_192(const Gemm& g, const void* weight, int split, device::Stream stream) {
  return run_tile<3, false, 64>(g, weight, split, stream);
}

Status gemm_large_tile_sums(const Gemm& g, const void* weight, int split, device::Stream stream) {
  return run_large_tile<LargeTileDims<128, 3, 5, false, true>>(g, weight, split, "gemm_large_tile_sums", stream);
}

}  // namespace tern::cuda
