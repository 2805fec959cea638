#include "cuda/gemm/codes/gemm_codes.cuh"

namespace tern::cuda {

Status launch_codes_int8_zeros(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream) {
  if (g.w.group == 0) return launch_zeros<CodeKind::kInt8, CodeScale::kRow>(g, tile, weights, stream);
  if (g.w.group == 32) return launch_zeros<CodeKind::kInt8, CodeScale::kHalves>(g, tile, weights, stream);
  return launch_zeros<CodeKind::kInt8, CodeScale::kBlocks>(g, tile, weights, stream);
}

}  // namespace tern::cuda
