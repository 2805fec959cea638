// Tiles of gemm_fixed.cuh with 192 rows of the weight.
#include "cuda/gemm/sm90/gemm_fixed_run.cuh"

namespace tern::cuda {

Status run_fixed_192(const Gemm& g, const void* weight, int split, device::Stream stream) {
  return run_fixed_tile<3, false, 64>(g, weight, split, stream);
}

Status run_fixed_sums(const Gemm& g, const void* weight, int split, device::Stream stream) {
  return run_fixed<FixedTile<128, 3, 5, false, true>>(g, weight, split, "gemm_fixed_sums", stream);
}

}  // namespace tern::cuda
