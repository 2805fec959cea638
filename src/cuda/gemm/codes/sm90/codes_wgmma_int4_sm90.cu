#include "cuda/gemm/codes/sm90/codes_wgmma_run.cuh"

namespace tern::cuda {

Status codes_wgmma_int4(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream) {
  return launch_codes_wgmma<CodeKind::kInt4, 0>(g, tile, weight, stream);
}

}  // namespace tern::cuda
