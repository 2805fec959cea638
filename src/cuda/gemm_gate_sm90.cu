// Products of many rows with their gate on Hopper: a block multiplies 128 tokens by 128 rows of gate and the 128 of up
// that belong to them, so that a thread holds both and nothing lies between. Two blocks of a cluster take neighbouring
// tokens and read one tile of the weight, each half of it for both. Blocks stay for all their tiles: while one is
// written, the next one's operands arrive.
#include "cuda/gemm.h"
#include "cuda/hopper.cuh"
#include "cuda/kernel_util.cuh"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"

namespace tern::cuda {
namespace {

struct GateTile {
  static constexpr int kTokens = 128, kHalf = 128, kK = 64, kDepth = 4, kPair = 2;
  static constexpr int kWorkers = 256, kThreads = kWorkers + 128;
  static constexpr int kX = kTokens * kK * 2, kWeight = kHalf * kK * 2;  // bytes
  static constexpr int kStage = kX + 2 * kWeight, kOut = 64 * 64 * 2;
  static constexpr size_t kBytes = 1024 + kDepth * kStage + 4 * kOut;
};

struct GateGrid {
  int pairs, weight_tiles, k_tiles, half;  // half: columns of out
  int band;                                // pairs of token tiles side by side: what a wave reads stays in the cache
};

// The pair of token tiles and the weight tile number `index`.
__device__ __forceinline__ int2 gate_tile(const GateGrid& grid, int index) {
  const int band = grid.band * grid.weight_tiles, first = index / band * grid.band;
  const int across = min(grid.band, grid.pairs - first);
  return make_int2(first + index % band % across, index % band / across);
}

struct GateRing {
  char* stages;
  uint64_t *full, *empty;
  __device__ char* x(int s) const { return stages + s * GateTile::kStage; }
  __device__ char* weight(int s, int half) const { return x(s) + GateTile::kX + half * GateTile::kWeight; }
};

// One thread: x of this block's tokens, and this block's half of the weight for both blocks.
__device__ void fill_gate(const GateRing& ring, const CUtensorMap& weight_map, const CUtensorMap& x_map,
                          const GateGrid& grid, int rank) {
  const int tiles = grid.pairs * grid.weight_tiles;
  wait_for_previous();
  int i = 0;
  for (int index = blockIdx.x / GateTile::kPair; index < tiles; index += gridDim.x / GateTile::kPair) {
    const int2 tile = gate_tile(grid, index);
    const int token = (tile.x * GateTile::kPair + rank) * GateTile::kTokens;
    const int row = tile.y * GateTile::kHalf + rank * grid.half;
    for (int k = 0; k < grid.k_tiles; ++k, ++i) {
      const int s = i % GateTile::kDepth;
      if (i >= GateTile::kDepth) {
        hopper::barrier_wait(ring.empty + s, static_cast<uint32_t>(i / GateTile::kDepth - 1) & 1);
      }
      hopper::barrier_expect(ring.full + s, GateTile::kStage);
      hopper::load_box(ring.x(s), &x_map, ring.full + s, k * GateTile::kK, token, hopper::kEvictNormal);
      hopper::load_box_all(ring.weight(s, rank), &weight_map, ring.full + s, k * GateTile::kK, row, uint16_t{3},
                           hopper::kEvictNormal);
    }
  }
}

__device__ __forceinline__ void release(const GateRing& ring, int i) {
  if ((threadIdx.x & 31) < GateTile::kPair) {
    hopper::barrier_arrive_at(ring.empty + i % GateTile::kDepth, static_cast<int>(threadIdx.x & 31));
  }
}

// The gate of 64 tokens by 128 columns goes to shared memory as two boxes of 64 columns, and from there to out.
__device__ __forceinline__ void store_gate(const float (&acc)[128], char* to, const CUtensorMap& out_map, int token,
                                           int column, int group) {
  const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const bool leads = threadIdx.x % 128 == 0;
  if (leads) hopper::store_read();  // the boxes of the tile before have left
  hopper::group_sync(1 + group, 128);
#pragma unroll
  for (int j = 0; j < 64; j += 2) {
    const auto gated = [&](int i) { return __fdividef(acc[i], 1.0f + __expf(-acc[i])) * acc[64 + i]; };
    const int r = row + j / 2 % 2 * 8, c = j / 4 * 8 + lane % 4 * 2;
    char* at = to + c / 64 * GateTile::kOut + r * 128 + ((c % 64 * 2) ^ (r % 8 * 16));
    *reinterpret_cast<uint32_t*>(at) = pack2(gated(j), gated(j + 1));
  }
  hopper::shared_to_engine();
  hopper::group_sync(1 + group, 128);
  if (!leads) return;
  hopper::store_box(&out_map, to, column, token);
  hopper::store_box(&out_map, to + GateTile::kOut, column + 64, token);
  hopper::store_commit();
}

__device__ void multiply_gate(const GateRing& ring, const CUtensorMap& out_map, const GateGrid& grid, int rank,
                              char* staging) {
  const int group = threadIdx.x / 128, tiles = grid.pairs * grid.weight_tiles;
  float acc[128];
  int i = 0;
  for (int index = blockIdx.x / GateTile::kPair; index < tiles; index += gridDim.x / GateTile::kPair) {
    for (int k = 0; k < grid.k_tiles; ++k, ++i) {
      const int s = i % GateTile::kDepth;
      hopper::barrier_wait(ring.full + s, static_cast<uint32_t>(i / GateTile::kDepth) & 1);
      const uint64_t a = hopper::tile_descriptor(hopper::shared_address(ring.x(s)) + group * 64 * GateTile::kK * 2);
      const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.weight(s, 0)));
      hopper::wgmma_fence();
#pragma unroll
      for (int step = 0; step < GateTile::kK / 16; ++step) {
        hopper::Wgmma<256>::run(acc, a + 2 * step, b + 2 * step, k + step > 0);
      }
      hopper::wgmma_commit();
      hopper::wgmma_wait<1>();
      if (k > 0) release(ring, i - 1);
    }
    hopper::wgmma_wait<0>();
    release(ring, i - 1);
    const int2 tile = gate_tile(grid, index);
    store_gate(acc, staging + group * 2 * GateTile::kOut, out_map,
               (tile.x * GateTile::kPair + rank) * GateTile::kTokens + group * 64, tile.y * GateTile::kHalf, group);
  }
  if (threadIdx.x % 128 == 0) hopper::store_read();
}

__global__ void __launch_bounds__(GateTile::kThreads, 1)
    gate_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                const __grid_constant__ CUtensorMap out_map, const GateGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * GateTile::kDepth];
  let_next_start();
  const uint32_t at = hopper::shared_address(memory);
  const GateRing ring{memory + ((at + 1023) / 1024 * 1024 - at), barriers, barriers + GateTile::kDepth};
  const int rank = hopper::cluster_rank();
  if (threadIdx.x == 0) {
    for (int s = 0; s < GateTile::kDepth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, GateTile::kPair * GateTile::kWorkers / 32);
    }
    hopper::barrier_init_done();
  }
  hopper::cluster_sync();
  if (threadIdx.x >= GateTile::kWorkers) {
    hopper::registers_down<40>();
    if (threadIdx.x == GateTile::kWorkers) fill_gate(ring, weight_map, x_map, grid, rank);
    __syncwarp();
  } else {
    hopper::registers_up<232>();
    multiply_gate(ring, out_map, grid, rank, ring.stages + GateTile::kDepth * GateTile::kStage);
  }
  hopper::cluster_sync();  // nobody leaves while the other one's copies and arrivals come here
}

}  // namespace

bool gate_fits(const Gemm& g, device::Stream stream) {
  if (!g.gated || g.bias != nullptr || !g.out_bf16 || !mma_fits(g) || g.n % 16 != 0 || g.rows < kGateRows ||
      reinterpret_cast<uintptr_t>(g.out) % 16 != 0 || g.out_row % 8 != 0) {
    return false;
  }
  // Its tiles are large: where the last wave leaves much idle, others have smaller ones.
  const int64_t pair = GateTile::kPair * GateTile::kTokens, most = state(stream).multiprocessors / GateTile::kPair;
  const int64_t waves = blocks_for(blocks_for(g.rows, pair) * blocks_for(g.n / 2, GateTile::kHalf), most);
  return 20 * g.rows * (g.n / 2) >= 17 * waves * most * pair * GateTile::kHalf;
}

Status gemm_gate(const Gemm& g, const void* weight, device::Stream stream) {
  GateGrid grid;
  grid.half = static_cast<int>(g.n / 2);
  grid.pairs = static_cast<int>(blocks_for(g.rows, GateTile::kPair * GateTile::kTokens));
  grid.weight_tiles = static_cast<int>(blocks_for(grid.half, GateTile::kHalf));
  grid.k_tiles = static_cast<int>(blocks_for(g.k, GateTile::kK));
  grid.band = g.rows > 4096 ? 2 : 8;
  CUtensorMap weight_map, x_map, out_map;
  TERN_RETURN_IF_ERROR(tensor_map(weight, g.n, g.k, g.w_row, GateTile::kHalf, &weight_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, GateTile::kTokens, &x_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.out, g.rows, grid.half, g.out_row, 64, &out_map));
  constexpr const char* kName = "gemm_gate";
  const int most = state(stream).multiprocessors / GateTile::kPair, tiles = grid.pairs * grid.weight_tiles;
  const auto blocks = static_cast<unsigned>(GateTile::kPair * (tiles < most ? tiles : most));
  return launch(stream, kName, {blocks, GateTile::kThreads, GateTile::kBytes, GateTile::kPair}, gate_kernel, weight_map,
                x_map, out_map, grid);
}

}  // namespace tern::cuda
