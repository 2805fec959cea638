// Products with one weight on Hopper.
#include "cuda/gemm/gemm_splitk_dsmem.h"
#include "cuda/gemm/sm90/gemm_wgmma_run.cuh"

namespace tern::cuda {

int wgmma_split(int64_t n, int64_t k) {
  const int64_t tiles = blocks_for(n, 128), k_tiles = blocks_for(k, 64);
  int split = 1;
  while (split < 8 && tiles * split * 2 <= 224 && k_tiles / (split * 2) >= 4) split *= 2;
  // Halves of these just fill three blocks per multiprocessor.
  if (split == 1 && tiles > 170 && tiles <= 198 && k_tiles >= 32) split = 2;
  return split;
}

int wgmma_norm_width(const Gemm& g) { return splitk_dsmem_fits(g, wgmma_split(g.n, g.k)) ? 16 : 128; }

// Cutting k fills the GPU when there are few tiles. In deterministic mode it is cut alike for any number of rows.
Status gemm_wgmma(const Gemm& g, const void* weight, device::Stream stream) {
  int split = wgmma_split(g.n, g.k);
  if (!state(stream).deterministic && g.rows > 256) {
    const int64_t tiles = blocks_for(g.n, 128) * blocks_for(g.rows, 256);
    while (split > 1 && tiles * split > state(stream).multiprocessors) split /= 2;
  }
  return gemm_wgmma(g, weight, split, stream);
}

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
  if (splitk_dsmem_fits(g, split)) return gemm_splitk_dsmem(g, weight, split, stream);
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
