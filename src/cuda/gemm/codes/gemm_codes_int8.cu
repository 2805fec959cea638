#include "cuda/gemm/codes/gemm_codes.cuh"

namespace tern::cuda {

Status launch_codes_int8(const CodeGemm& g, CodeTile tile, const void* const* weights, device::Stream stream) {
  return launch_codes<CodeKind::kInt8, CodeScale::kRow>(g, tile, weights, stream);
}

}  // namespace tern::cuda
