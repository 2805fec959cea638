#include "cuda/gemm/portable/gemm_mma.cuh"

namespace tern::cuda {

Status launch_mma_128(const Gemm& g, const void* const* weights, device::Stream stream) {
  return launch_mma<MmaTile<128, 128, 64, 32, 3>>(g, weights, "gemm_mma_128", stream);
}

}  // namespace tern::cuda
