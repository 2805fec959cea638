// Tiles of gemm_fixed.cuh with a gate.
#include "cuda/gemm/sm90/gemm_fixed_run.cuh"

namespace tern::cuda {

Status run_fixed_gated(const Gemm& g, const void* weight, device::Stream stream) {
  return run_fixed_tile<3, true>(g, weight, 1, stream);
}

}  // namespace tern::cuda
