// Which shape of gemm_push.cuh a product takes.
#include "cuda/gemm_push_leave.cuh"

#include <algorithm>

#include "cuda/gemm_push.h"
#include "cuda/tensor_map.h"

namespace tern::cuda {
namespace {

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    push_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map, const Gemm g,
                const PushGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kMostDepth + 1];
  __shared__ float scales[Tile::kTokens];
  let_next_start();
  const int rank = hopper::cluster_rank();
  const PushWork work{static_cast<int>(blockIdx.x) / grid.split, rank * grid.k_tiles / grid.split,
                      (rank + 1) * grid.k_tiles / grid.split};
  const PushRing<Tile> ring(memory, barriers, grid.depth, work.last - work.first);
  if (threadIdx.x == 0) {
    for (int s = 0; s < grid.depth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, Tile::kWorkers / 32);
    }
    hopper::barrier_init(ring.landed, 1);
    hopper::barrier_init_done();
    hopper::barrier_expect(ring.landed, Tile::kTokens * Tile::kRows * 4);
  }
  __syncthreads();
  if (threadIdx.x >= Tile::kWorkers) {
    if (threadIdx.x == Tile::kWorkers) hopper::prefetch_map(&x_map);
    fill_push(
        ring, work, grid.x_bytes,
        [&](char* to, uint64_t* barrier, int k) {
          if (g.gated) {
            hopper::load_units(to, &weight_map, barrier, work.tile * (Tile::kRows / 16), k, hopper::kEvictFirst);
          } else {
            hopper::load_box(to, &weight_map, barrier, k * Tile::kK, work.tile * Tile::kRows, hopper::kEvictFirst);
          }
        },
        [&](char* to, uint64_t* barrier, int k) {
          hopper::load_box(to, &x_map, barrier, k * Tile::kK, 0, hopper::kEvictLast);
        });
    push_wait();
    return;
  }
  if (threadIdx.x < 32) bring_parameters(g, grid);
  PushNorm<Tile> norm;
  norm.load(g, grid, work, rank);
  const bool scaled = g.before.squares != nullptr;
  if (scaled) norm.own.end(g, 0, scales);  // what it waits for comes with the first tokens
  typename Tile::Sums acc;
  multiply_push(ring, work, acc);
  if (scaled) hopper::group_sync(1, Tile::kWorkers);
  push_wait();
  if (grid.split == 2) {
    exchange<Tile, 2>(g, ring, work, rank, acc, norm, scales);
  } else if (grid.split == 4) {
    exchange<Tile, 4>(g, ring, work, rank, acc, norm, scales);
  } else {
    exchange<Tile, 8>(g, ring, work, rank, acc, norm, scales);
  }
}

// Stages of a ring: what is there for as many blocks on a multiprocessor as there will be, but for two at least, so
// that the next kernel's blocks can begin; no more than a block's steps.
template <class Tile>
int ring_depth(const Gemm& g, const PushGrid& grid, device::Stream stream) {
  const int64_t all = blocks_for(g.n, Tile::kRows) * grid.split;
  const int64_t blocks = std::clamp<int64_t>(blocks_for(all, state(stream).multiprocessors), 2, Tile::kBlocks);
  const int steps = static_cast<int>(blocks_for(grid.k_tiles, grid.split));
  return std::max(2, std::min(push_depth(Tile::kStage, static_cast<int>(blocks)), steps));
}

template <class Tile>
Status push(const Gemm& g, const void* weight, PushGrid grid, const KernelNames& names, device::Stream stream) {
  grid.depth = ring_depth<Tile>(g, grid, stream);
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(g.gated ? tensor_map_units(weight, g.n, g.w_row, true, Tile::kRows / 16, 1, &weight_map)
                               : tensor_map(weight, g.n, g.k, g.w_row, Tile::kRows, &weight_map));
  const int box = token_box(g.rows, Tile::kTokens);
  grid.x_bytes = box * Tile::kK * 2;
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, box, &x_map));
  const auto kernel = push_kernel<Tile>;
  const auto split = static_cast<unsigned>(grid.split);
  const auto blocks = static_cast<unsigned>(blocks_for(g.n, Tile::kRows)) * split;
  return launch(stream, names.of(g), {dim3(blocks), Tile::kThreads, Tile::bytes(grid.depth), split}, kernel, weight_map,
                x_map, g, grid);
}

// Whether gemm_sm90.cu is not ahead: its blocks copy x less often, which counts with a gate, whose weights are larger.
bool push_ahead(const Gemm& g) {
  constexpr int64_t kPlain = int64_t{5} << 20, kGated = int64_t{6} << 20;  // values of the weight
  if (!g.gated) return g.rows <= 64 && g.n * g.k <= kPlain;
  return g.rows <= 32 && g.n * g.k <= kGated && g.n % 16 == 0 && g.k % 64 == 0;
}

}  // namespace

bool push_fits(const Gemm& g, int split) { return split > 1 && push_ahead(g); }

Status gemm_push(const Gemm& g, const void* weight, int split, device::Stream stream) {
  PushGrid grid{};
  grid.k_tiles = static_cast<int>(blocks_for(g.k, 64)), grid.split = split;
  if (g.rows <= 8) return push<PushTile<8>>(g, weight, grid, {"gemm_push_8", "gemm_push_8_normed"}, stream);
  if (g.rows <= 16) return push<PushTile<16>>(g, weight, grid, {"gemm_push_16", "gemm_push_16_normed"}, stream);
  if (g.rows <= 32) return push<PushTile<32>>(g, weight, grid, {"gemm_push_32", "gemm_push_32_normed"}, stream);
  return push<PushTile<64>>(g, weight, grid, {"gemm_push_64", "gemm_push_64_normed"}, stream);
}

}  // namespace tern::cuda
