// Which shape of gemm_parts.cuh a product takes.
#include "base/checked.h"
#include "cuda/gemm_parts.cuh"
#include "cuda/tensor_map.h"

namespace tern::cuda {
namespace {

template <class Tile>
PartsGrid parts_grid(const Gemm& g, int split, device::Stream stream) {
  PartsGrid grid{};
  grid.weight_tiles = static_cast<int>(blocks_for(g.n, Tile::kRows));
  grid.row_tiles = static_cast<int>(blocks_for(g.rows, Tile::kTokens));
  grid.k_tiles = static_cast<int>(blocks_for(g.k, Tile::kK)), grid.split = split;
  grid.weight_places = round_up(grid.weight_tiles, Tile::kPair);
  grid.parts = state(stream).parts, grid.tickets = state(stream).tickets;
  return grid;
}

// Blocks that run at once have a job each; where that is not enough, clusters do the same.
template <class Tile>
Status run_parts(const Gemm& g, const void* weight, int split, const char* name, device::Stream stream) {
  const PartsGrid grid = parts_grid<Tile>(g, split, stream);
  const int64_t jobs = int64_t{grid.weight_places} * grid.row_tiles * split;
  if (jobs > state(stream).multiprocessors) return gemm_hopper(g, weight, split, stream);
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(tensor_map(weight, g.n, g.k, g.w_row, Tile::kRows, &weight_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, Tile::kTokens / Tile::kPair, &x_map));
  const auto blocks = static_cast<unsigned>(jobs);
  const auto start = [&](auto kernel) {
    return launch(stream, name, {dim3(blocks), Tile::kThreads, Tile::kBytes, Tile::kPair}, kernel, weight_map, x_map, g,
                  grid);
  };
  return g.out_bf16 ? start(parts_kernel<Tile, bf>) : start(parts_kernel<Tile, float>);
}

}  // namespace

Status gemm_fixed(const Gemm& g, const void* weight, device::Stream stream) {
  const int split = hopper_split(g.n, g.k);
  if (split == 1 || g.gated || g.n * g.k < kLargeWeight || state(stream).parts == nullptr) {
    return gemm_hopper(g, weight, split, stream);
  }
  if (g.rows <= 8) return run_parts<PartsTile<8, 12>>(g, weight, split, "gemm_parts_8", stream);
  if (g.rows <= 32) return run_parts<PartsTile<32, 10>>(g, weight, split, "gemm_parts_32", stream);
  if (g.rows <= 64) return run_parts<PartsTile<64, 8>>(g, weight, split, "gemm_parts_64", stream);
  if (g.rows <= 128) return run_parts<PartsTile<128, 6>>(g, weight, split, "gemm_parts_128", stream);
  return run_parts<PartsTile<256, 4>>(g, weight, split, "gemm_parts_256", stream);
}

}  // namespace tern::cuda
