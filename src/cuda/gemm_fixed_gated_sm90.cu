// Tiles of gemm_fixed.cuh with a gate.
#include "cuda/gemm_fixed_run.cuh"

namespace tern::cuda {

Status run_fixed_gated(const Gemm& g, const void* weight, device::Stream stream) {
  return run_fixed_tile<3, true>(g, weight, 1, stream);
}

Status run_fixed_gated_small(const Gemm& g, const void* weight, int groups, device::Stream stream) {
  if (groups == 1) return run_fixed<FixedTile<128, 1, 8, true>>(g, weight, 1, "gemm_fixed_gate_64", stream);
  if (groups == 2) return run_fixed<FixedTile<128, 2, 7, true>>(g, weight, 1, "gemm_fixed_gate_128", stream);
  return run_fixed<FixedTile<128, 3, 5, true>>(g, weight, 1, "gemm_fixed_gate_192", stream);
}

}  // namespace tern::cuda
