// Launches the kernel that choose_codes() names.
#include "cuda/gemm/code_format.h"
#include "cuda/gemm/codes/codes_gemm.h"

namespace tern::cuda {

namespace {

Status gemm_codes_wgmma(const Gemm& g, const void* weight, device::Stream stream) {
  const CodesWgmma tile = choose_codes_wgmma(g, device_facts(stream));
  if (g.codes.kind == CodeKind::kInt8) return codes_wgmma_int8(g, tile, weight, stream);
  if (g.codes.kind == CodeKind::kE4m3) return codes_wgmma_e4m3(g, tile, weight, stream);
  if (g.codes.group == 0) return codes_wgmma_int4(g, tile, weight, stream);
  return g.codes.group == 32 ? codes_wgmma_int4_32(g, tile, weight, stream)
                             : codes_wgmma_int4_64(g, tile, weight, stream);
}

}  // namespace

Status codes_product(const Gemm& g, const void* weight, device::Stream stream) {
  return gemm_codes(code_gemm(g), &weight, stream);
}

Status gemm_codes(const CodeGemm& g, const void* const* weights, device::Stream stream) {
  const CodeTile tile = choose_codes(g, device_facts(stream));
  if (tile == CodeTile::kWgmma) return gemm_codes_wgmma(plain_gemm(g), weights[0], stream);
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
