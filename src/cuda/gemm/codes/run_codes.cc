// Launches the kernel that choose_codes() names.
#include "cuda/gemm/codes/codes_gemm.h"

namespace tern::cuda {

Status gemm_codes(const CodeGemm& g, const void* const* weights, device::Stream stream) {
  const CodeTile tile = choose_codes(g, device_facts(stream));
  const bool rows = g.w.group == 0;
  switch (g.w.kind) {
    case CodeKind::kInt8:
      if (g.w.zeros) return launch_codes_int8_zeros(g, tile, weights, stream);
      return rows ? launch_codes_int8(g, tile, weights, stream) : launch_codes_int8_groups(g, tile, weights, stream);
    case CodeKind::kInt4:
      if (g.w.zeros) return launch_codes_int4_zeros(g, tile, weights, stream);
      return rows ? launch_codes_int4(g, tile, weights, stream) : launch_codes_int4_groups(g, tile, weights, stream);
    case CodeKind::kE4m3:
      break;
  }
  return rows ? launch_codes_e4m3(g, tile, weights, stream) : launch_codes_e4m3_blocks(g, tile, weights, stream);
}

}  // namespace tern::cuda
