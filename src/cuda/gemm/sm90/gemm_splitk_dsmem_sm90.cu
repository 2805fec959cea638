// Which shape of gemm_splitk_dsmem.cuh a product takes.
#include "cuda/gemm/sm90/gemm_splitk_dsmem_epilogue.cuh"

#include <algorithm>

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

template <class Tile>
__device__ __forceinline__ void begin_barriers(const SplitKRing<Tile>& ring) {
  for (int s = 0; s < ring.depth; ++s) {
    hopper::barrier_init(ring.full + s, 1);
    hopper::barrier_init(ring.empty + s, Tile::kWorkers / 32);
  }
  hopper::barrier_init(ring.landed, 1);
  hopper::barrier_init_done();
  hopper::barrier_expect(ring.landed, Tile::kLanding);
}

template <class Tile, int kSplit>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    splitk_dsmem_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                        const Gemm g, const SplitKGrid grid) {
  constexpr int kScaled = Tile::kWorkers + 32;  // threads that meet where scales are there
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kMostDepth + 1];
  __shared__ __align__(8) float scales[Tile::kTokens];
  let_next_start();
  const int rank = hopper::cluster_rank(), first = rank * grid.k_tiles / kSplit;
  const SplitKWork work{static_cast<int>(blockIdx.x) / kSplit, rank, first, (rank + 1) * grid.k_tiles / kSplit - first};
  const SplitKRing<Tile> ring(memory, barriers, grid, work.steps);
  if (threadIdx.x == 0) begin_barriers(ring);
  __syncthreads();
  if (threadIdx.x >= kScaled) {
    splitk_dsmem_arrive();
    if (g.before.squares != nullptr) {
      bring_parameters(g);
      wait_for_previous();
      splitk_dsmem_scales<Tile, kSplit>(g, rank, scales);
      hopper::group_arrive(1, kScaled);
    }
    return splitk_dsmem_wait();
  }
  if (threadIdx.x >= Tile::kWorkers) {
    if (threadIdx.x == Tile::kWorkers) hopper::prefetch_map(&x_map);
    fill_push(
        ring, work,
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
    return splitk_dsmem_wait();
  }
  if (threadIdx.x < 32) bring_parameters(g, grid);
  SplitKEpilogue<Tile, kSplit> epilogue(g, work);
  if (g.after.residual != nullptr) wait_for_previous();
  epilogue.load(g);
  typename Tile::Sums acc;
  multiply_splitk_dsmem(ring, work.steps, acc);
  splitk_dsmem_wait();
  send_part<Tile, kSplit>(ring, rank, acc);
  if (g.before.squares != nullptr) hopper::group_sync(1, kScaled);
  // Nobody waits at the end: a block stays until all parts of its share have arrived, so those who send may leave.
  epilogue.finish(g, ring, scales);
}

// Stages of a ring: what is there for as many blocks on a multiprocessor as there will be, but for two at least, so
// that the next kernel's blocks can begin; no more than a block's steps.
template <class Tile>
int ring_depth(const Gemm& g, const SplitKGrid& grid, int split, device::Stream stream) {
  const int64_t all = blocks_for(g.n, Tile::kRows) * split;
  const int64_t blocks = std::clamp<int64_t>(blocks_for(all, state(stream).multiprocessors), 2, Tile::kBlocks);
  const int room = Tile::room(static_cast<int>(blocks)) - Tile::bytes(0, grid.x_bytes);
  const int most = std::min(
      {room / (Tile::kWeight + grid.x_bytes), static_cast<int>(blocks_for(grid.k_tiles, split)), Tile::kMostDepth});
  return std::max(Tile::kLeastDepth, most);
}

template <class Tile, int kSplit>
Status push(const Gemm& g, const void* weight, const KernelNames& names, device::Stream stream) {
  const int box = token_box(g.rows, Tile::kTokens);
  SplitKGrid grid{};
  grid.k_tiles = static_cast<int>(blocks_for(g.k, Tile::kK)), grid.x_bytes = box * Tile::kK * 2;
  grid.depth = ring_depth<Tile>(g, grid, kSplit, stream);
  CUtensorMap weight_map, x_map;
  TERN_RETURN_IF_ERROR(g.gated ? tensor_map_units(weight, g.n, g.w_row, true, Tile::kRows / 16, 1, &weight_map)
                               : tensor_map(weight, g.n, g.k, g.w_row, Tile::kRows, &weight_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, box, &x_map));
  const auto blocks = static_cast<unsigned>(blocks_for(g.n, Tile::kRows)) * kSplit;
  const auto bytes = static_cast<size_t>(Tile::bytes(grid.depth, grid.x_bytes));
  return launch(stream, names.of(g), {dim3(blocks), Tile::kThreads, bytes, kSplit}, splitk_dsmem_kernel<Tile, kSplit>,
                weight_map, x_map, g, grid);
}

template <class Tile>
Status push(const Gemm& g, const void* weight, int split, const KernelNames& names, device::Stream stream) {
  if (split == 2) return push<Tile, 2>(g, weight, names, stream);
  return split == 4 ? push<Tile, 4>(g, weight, names, stream) : push<Tile, 8>(g, weight, names, stream);
}

}  // namespace

Status gemm_splitk_dsmem(const Gemm& g, const void* weight, int split, device::Stream stream) {
  if (g.rows <= 16)
    return push<SplitKTile<16>>(g, weight, split, {"gemm_splitk_dsmem_16", "gemm_splitk_dsmem_16_normed"}, stream);
  if (g.rows <= 32)
    return push<SplitKTile<32>>(g, weight, split, {"gemm_splitk_dsmem_32", "gemm_splitk_dsmem_32_normed"}, stream);
  return push<SplitKTile<64>>(g, weight, split, {"gemm_splitk_dsmem_64", "gemm_splitk_dsmem_64_normed"}, stream);
}

}  // namespace tern::cuda
