// Products with one weight on Hopper.
#include "cuda/gemm/sm90/gemm_wgmma_run.cuh"

namespace tern::cuda {

namespace {

// `many`: blocks enough for three of a multiprocessor, whose rings have kThree stages, else kTwo.
template <int kTokens, int kThree, int kTwo>
Status run_few(const Gemm& g, const void* weight, const HopperGrid& grid, bool many, const KernelNames& names,
               device::Stream stream) {
  if (many) return launch_hopper<WgmmaTile<kTokens, kTokens, kThree, 3>>(g, weight, grid, names, stream);
  return launch_hopper<WgmmaTile<kTokens, kTokens, kTwo, 2>>(g, weight, grid, names, stream);
}

constexpr KernelNames kHopper8{"gemm_wgmma_8", "gemm_wgmma_8_normed"},
    kHopper16{"gemm_wgmma_16", "gemm_wgmma_16_normed"}, kHopper32{"gemm_wgmma_32", "gemm_wgmma_32_normed"},
    kHopper64{"gemm_wgmma_64", "gemm_wgmma_64_normed"}, kHopper128{"gemm_wgmma_128", nullptr},
    kHopper256{"gemm_wgmma_256", nullptr};

}  // namespace

Status gemm_wgmma(const Gemm& g, const void* weight, int split, device::Stream stream) {
  const HopperGrid grid(g, split);
  const bool many = blocks_for(g.n, 128) * split > 2 * int64_t{state(stream).multiprocessors};
  if (g.rows <= 8) return run_few<8, 4, 6>(g, weight, grid, many, kHopper8, stream);
  if (g.rows <= 16) return run_few<16, 4, 6>(g, weight, grid, many, kHopper16, stream);
  if (g.rows <= 32) return run_few<32, 3, 5>(g, weight, grid, many, kHopper32, stream);
  if (g.rows <= 64) return run_few<64, 3, 4>(g, weight, grid, many, kHopper64, stream);
  if (g.rows <= 128) return launch_hopper<WgmmaTile<128, 128, 3, 2>>(g, weight, grid, kHopper128, stream);
  return launch_hopper<WgmmaTile<256, 256, 4, 1>>(g, weight, grid, kHopper256, stream);
}

}  // namespace tern::cuda
