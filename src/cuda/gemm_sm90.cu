// Products with one weight on Hopper.
#include "cuda/gemm_hopper_run.cuh"
#include "cuda/gemm_push.h"

namespace tern::cuda {

int hopper_split(int64_t n, int64_t k) {
  const int64_t tiles = blocks_for(n, 128), k_tiles = blocks_for(k, 64);
  int split = 1;
  while (split < 8 && tiles * split * 2 <= 224 && k_tiles / (split * 2) >= 4) split *= 2;
  // Halves of these just fill three blocks per multiprocessor.
  if (split == 1 && tiles > 170 && tiles <= 198 && k_tiles >= 32) split = 2;
  return split;
}

int hopper_norm_width(const Gemm& g) { return push_fits(g, hopper_split(g.n, g.k)) ? 16 : 128; }

// Cutting k fills the GPU when there are few tiles. In deterministic mode it is cut alike for any number of rows.
Status gemm_hopper(const Gemm& g, const void* weight, device::Stream stream) {
  int split = hopper_split(g.n, g.k);
  if (!state(stream).deterministic && g.rows > 256) {
    const int64_t tiles = blocks_for(g.n, 128) * blocks_for(g.rows, 256);
    while (split > 1 && tiles * split > state(stream).multiprocessors) split /= 2;
  }
  return gemm_hopper(g, weight, split, stream);
}

Status gemm_hopper(const Gemm& g, const void* weight, int split, device::Stream stream) {
  if (push_fits(g, split)) return gemm_push(g, weight, split, stream);
  const HopperGrid grid(g, split);
  // Three smaller blocks per multiprocessor where there are enough of them, else two with deeper rings.
  const bool many = blocks_for(g.n, 128) * split > 2 * int64_t{state(stream).multiprocessors};
  if (g.rows <= 8) {
    if (many)
      return launch_hopper<HopperTile<8, 8, 4, 3>>(g, weight, grid, {"gemm_hopper_8", "gemm_hopper_8_normed"}, stream);
    return launch_hopper<HopperTile<8, 8, 6, 2>>(g, weight, grid, {"gemm_hopper_8", "gemm_hopper_8_normed"}, stream);
  }
  if (g.rows <= 16) {
    if (many)
      return launch_hopper<HopperTile<16, 16, 4, 3>>(g, weight, grid, {"gemm_hopper_16", "gemm_hopper_16_normed"},
                                                     stream);
    return launch_hopper<HopperTile<16, 16, 6, 2>>(g, weight, grid, {"gemm_hopper_16", "gemm_hopper_16_normed"},
                                                   stream);
  }
  if (g.rows <= 32) {
    if (many)
      return launch_hopper<HopperTile<32, 32, 3, 3>>(g, weight, grid, {"gemm_hopper_32", "gemm_hopper_32_normed"},
                                                     stream);
    return launch_hopper<HopperTile<32, 32, 5, 2>>(g, weight, grid, {"gemm_hopper_32", "gemm_hopper_32_normed"},
                                                   stream);
  }
  if (g.rows <= 64) {
    if (many)
      return launch_hopper<HopperTile<64, 64, 3, 3>>(g, weight, grid, {"gemm_hopper_64", "gemm_hopper_64_normed"},
                                                     stream);
    return launch_hopper<HopperTile<64, 64, 4, 2>>(g, weight, grid, {"gemm_hopper_64", "gemm_hopper_64_normed"},
                                                   stream);
  }
  if (g.rows <= 128)
    return launch_hopper<HopperTile<128, 128, 3, 2>>(g, weight, grid, {"gemm_hopper_128", nullptr}, stream);
  return launch_hopper<HopperTile<256, 256, 4, 1>>(g, weight, grid, {"gemm_hopper_256", nullptr}, stream);
}

}  // namespace tern::cuda
