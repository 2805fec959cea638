#include "cuda/gemm/portable/gemm_mma.cuh"

namespace tern::cuda {

Status launch_mma_16(const Gemm& g, const void* const* weights, device::Stream stream) {
  return launch_mma<MmaTile<16, 64, 16, 16, 6>>(g, weights, "gemm_mma_16", stream);
}

}  // namespace tern::cuda
