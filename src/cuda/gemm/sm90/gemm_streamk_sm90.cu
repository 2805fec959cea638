// Large weights on Hopper (gemm_streamk.cuh).
#include "cuda/gemm/sm90/gemm_streamk.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

template <class Tile>
Status launch_streamk(const Gemm& g, const void* weight, Iterator w, const char* name, device::Stream stream) {
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(tensor_map(weight, g.n, g.k, g.w_row, Tile::kRows, &weight_map));
  const int box = token_box(g.rows, Tile::kTokens);
  w.stage_bytes = static_cast<uint32_t>(Tile::kWeight + Tile::kChunks * box * 128);
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, box, &x_map));
  const auto kernel = streamk_kernel<Tile>;
  const dim3 grid(static_cast<unsigned>(w.blocks));
  return launch(stream, name, {grid, Tile::kThreads, Tile::kBytes}, kernel, weight_map, x_map, g, w);
}

}  // namespace

Status gemm_streamk(const Gemm& g, const void* weight, device::Stream stream) {
  const StreamState& s = state(stream);
  Iterator w{};
  w.tiles = static_cast<int>(blocks_for(g.n, 128)), w.per_tile = static_cast<int>(blocks_for(g.k, 128));
  w.blocks = s.multiprocessors, w.parts = s.parts, w.tickets = s.tickets;
  if (g.rows <= 8) return launch_streamk<StreamKTile<8, 2, 6, 1>>(g, weight, w, "gemm_streamk_8", stream);
  if (g.rows <= 16) return launch_streamk<StreamKTile<16, 2, 6, 1>>(g, weight, w, "gemm_streamk_16", stream);
  if (g.rows <= 32) return launch_streamk<StreamKTile<32, 2, 5, 1>>(g, weight, w, "gemm_streamk_32", stream);
  return launch_streamk<StreamKTile<64, 2, 4, 1>>(g, weight, w, "gemm_streamk_64", stream);
}

}  // namespace tern::cuda
