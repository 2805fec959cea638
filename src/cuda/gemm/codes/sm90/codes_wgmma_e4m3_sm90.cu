#include "cuda/gemm/codes/sm90/codes_wgmma_run.cuh"

namespace tern::cuda {

Status codes_wgmma_e4m3(const Gemm& g, const CodesWgmma& tile, const void* weight, device::Stream stream) {
  return launch_codes_wgmma<CodeKind::kE4m3, 128>(g, tile, weight, stream);
}

}  // namespace tern::cuda
