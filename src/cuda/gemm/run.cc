// What was chosen, launched.
#include "cuda/gemm/gemm.h"

namespace tern::cuda {

Status run_gemm(const GemmChoice& choice, const Gemm& g, const void* weight, device::Stream stream) {
  switch (choice.kernel) {
    case GemmKernel::kMixed:
      return gemm_mixed(g, weight, stream);
    case GemmKernel::kGemv:
      return gemv(g, weight, stream);
    case GemmKernel::kSimple:
      return gemm_simple(g, &weight, stream);
    case GemmKernel::kMma:
      return gemm_mma(g, &weight, stream);
    case GemmKernel::kLargeTile128:
      return gemm_large_tile_128(g, weight, choice.split, stream);
    case GemmKernel::kLargeTile192:
      return gemm_large_tile_192(g, weight, choice.split, stream);
    case GemmKernel::kLargeTileSums:
      return gemm_large_tile_sums(g, weight, choice.split, stream);
    case GemmKernel::kLargeTileGated:
      return gemm_large_tile_gated(g, weight, stream);
    case GemmKernel::kLargeTileSlim:
      return gemm_large_tile_slim(g, weight, stream);
    case GemmKernel::kLargeTileCluster:
      return gemm_large_tile_cluster(g, weight, stream);
    case GemmKernel::kGateWide:
    case GemmKernel::kGateNarrow:
    case GemmKernel::kGateSmall:
      return gemm_gate(g, weight, choice.kernel, stream);
    case GemmKernel::kSingleWave:
      return gemm_single_wave(g, weight, stream);
    case GemmKernel::kSmemResident:
      return gemm_smem_resident(g, weight, stream);
    case GemmKernel::kRegisterResident:
      return gemm_register_resident(g, weight, stream);
    case GemmKernel::kStreamK:
      return gemm_streamk(g, weight, stream);
    case GemmKernel::kSplitKDsmem:
      return gemm_splitk_dsmem(g, weight, choice.split, stream);
    case GemmKernel::kWgmma:
      return gemm_wgmma(g, weight, choice.split, stream);
    case GemmKernel::kLibrary:
    case GemmKernel::kLibraryUnaligned:
    case GemmKernel::kApart:
      break;
  }
  return make_error(ErrorCode::kInternal,
                    "this choice has no kernel of its own");  // product() asks again without cuBLASLt
}

Status run_grouped(const GroupedChoice& choice, const Gemm& g, const void* const* weights, device::Stream stream) {
  switch (choice.kernel) {
    case GroupedKernel::kSimple:
      return gemm_simple(g, weights, stream);
    case GroupedKernel::kMma:
      return gemm_mma(g, weights, stream);
    case GroupedKernel::kFew:
      return gemm_grouped_few(g, weights, stream);
    case GroupedKernel::kTiles32:
    case GroupedKernel::kTiles32Three:
    case GroupedKernel::kTiles128:
      return gemm_grouped_tiles(choice, g, weights, stream);
    case GroupedKernel::kWide:
    case GroupedKernel::kPairs:
      return gemm_grouped_wide(choice.kernel, g, weights, stream);
    case GroupedKernel::kGatherWide:
    case GroupedKernel::kGatherPairs:
      return gemm_grouped_gather(choice.kernel, g, weights, stream);
    case GroupedKernel::kApart:
      break;
  }
  return make_error(ErrorCode::kInternal, "this choice has no kernel of its own");
}

}  // namespace tern::cuda
