#include "cuda/gemm/codes/gemm_codes.cuh"

namespace tern::cuda {

Status launch_codes_int4_groups(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream) {
  if (g.w.group == 32) return launch_codes<CodeKind::kInt4, CodeScale::kHalves>(g, tile, weights, stream);
  return launch_codes<CodeKind::kInt4, CodeScale::kBlocks>(g, tile, weights, stream);
}

}  // namespace tern::cuda
