#include "cuda/gemm/portable/gemm_mma.cuh"

namespace tern::cuda {

Status launch_mma_64(const Gemm& g, const void* const* weights, device::Stream stream) {
  return launch_mma<MmaTile<64, 64, 32, 32, 4>>(g, weights, "gemm_mma_64", stream);
}

}  // namespace tern::cuda
