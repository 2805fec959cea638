// Products of many rows with their gate on Hopper: a block multiplies 128 tokens by 128 rows of gate (or fewer) and
// those of up that belong to them, so that a thread holds both and nothing lies between. Two blocks of a cluster take
// neighbouring tokens and read one tile of the weight, each half of it for both; of small tiles four do, two and two of
// which have the same tokens and read half of them for each other, or the second cache would be too slow. Blocks stay
// for all their tiles: while one is written, the next one's operands arrive.
#include <algorithm>

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/cluster_count.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/tensor_map.h"
#include "cuda/ptx/wgmma.cuh"

namespace tern::cuda {
namespace {

// kHalf_: rows of gate in a tile. kAcross_: neighbouring tiles of a cluster, with the same tokens.
template <int kHalf_, int kAcross_>
struct GateTile {
  static constexpr int kHalf = kHalf_, kAcross = kAcross_, kCluster = kGatePair * kAcross, kK = 64;
  static constexpr int kWorkers = 256, kThreads = kWorkers + 128;
  // Threads by which registers are dealt out, and what those who multiply get. Of the smallest tiles blocks leave room
  // for those of the norm before.
  static constexpr bool kSmall = kHalf <= 56;
  static constexpr int kBound = kSmall ? 640 : kThreads, kMost = kSmall ? 120 : 232;
  static constexpr int kX = kGateTokens * kK * 2, kWeight = kHalf * kK * 2;  // bytes
  static constexpr int kStage = kX + 2 * kWeight, kOut = 64 * kHalf * 2;     // kOut: of a warpgroup
  static constexpr int kDepth = 200 * 1024 / kStage;
  static constexpr bool kBoxes = kHalf % 64 == 0;  // results leave in boxes of 64 columns, else all in one
  static constexpr size_t kBytes = 1024 + kDepth * kStage + 2 * kOut;
};

struct GateGrid {
  int pairs, weight_groups, k_tiles, half;  // groups: tiles of a cluster; half: columns of out
  // Pairs of token tiles side by side. A band reads all of the weight: of few pairs each it is read from memory that
  // often, and what that takes of the card's power its clock lacks.
  static constexpr int kBand = 8;
};

// The pair of token tiles and the group of weight tiles number `index`.
__device__ __forceinline__ int2 gate_tile(const GateGrid& grid, int index) {
  const int band = GateGrid::kBand * grid.weight_groups, first = index / band * GateGrid::kBand;
  const int across = min(GateGrid::kBand, grid.pairs - first);
  return make_int2(first + index % band % across, index % band / across);
}

// Where a block of a cluster is: which tokens of the pair, which tile of the group.
struct GatePlace {
  int token, across;
  __device__ explicit GatePlace(int rank) : token(rank % kGatePair), across(rank / kGatePair) {}
};

template <class Tile>
struct GateRing {
  char* stages;
  uint64_t *full, *empty;
  __device__ char* x(int s) const { return stages + s * Tile::kStage; }
  __device__ char* weight(int s, int half) const { return x(s) + Tile::kX + half * Tile::kWeight; }
};

// One thread: this block's share of x and of the weight, for all that need it. Weights may come before the kernel
// before has ended.
template <class Tile>
__device__ void fill_gate(const GateRing<Tile>& ring, const CUtensorMap& weight_map, const CUtensorMap& x_map,
                          const GateGrid& grid, int rank) {
  const GatePlace place(rank);
  const int tiles = grid.pairs * grid.weight_groups, step = static_cast<int>(gridDim.x) / Tile::kCluster;
  const int begin = static_cast<int>(blockIdx.x) / Tile::kCluster, early = min(Tile::kDepth, grid.k_tiles);
  const auto load_weight = [&](int s, const int2& tile, int k) {
    const int row = (tile.y * Tile::kAcross + place.across) * Tile::kHalf + place.token * grid.half;
    hopper::barrier_expect(ring.full + s, Tile::kStage);
    hopper::load_box_all(ring.weight(s, place.token), &weight_map, ring.full + s, k * Tile::kK, row,
                         static_cast<uint16_t>(3 << kGatePair * place.across), hopper::kEvictNormal);
  };
  const auto load_x = [&](int s, const int2& tile, int k) {
    const int token = (tile.x * kGatePair + place.token) * kGateTokens;
    if constexpr (Tile::kAcross == 1) {
      hopper::load_box(ring.x(s), &x_map, ring.full + s, k * Tile::kK, token, hopper::kEvictNormal);
    } else {
      constexpr int kShare = kGateTokens / Tile::kAcross;
      hopper::load_box_all(ring.x(s) + place.across * kShare * Tile::kK * 2, &x_map, ring.full + s, k * Tile::kK,
                           token + place.across * kShare, static_cast<uint16_t>(5 << place.token),
                           hopper::kEvictNormal);
    }
  };
  for (int k = 0; k < early; ++k) load_weight(k, gate_tile(grid, begin), k);
  wait_for_previous();
  int i = 0;
  for (int index = begin; index < tiles; index += step) {
    const int2 tile = gate_tile(grid, index);
    for (int k = 0; k < grid.k_tiles; ++k, ++i) {
      const int s = i % Tile::kDepth;
      if (i >= early) {
        if (i >= Tile::kDepth) hopper::barrier_wait(ring.empty + s, static_cast<uint32_t>(i / Tile::kDepth - 1) & 1);
        load_weight(s, tile, k);
      }
      load_x(s, tile, k);
    }
  }
}

// The warp has read stage i: says so to all blocks that write there.
template <class Tile>
__device__ __forceinline__ void release(const GateRing<Tile>& ring, int rank, int i) {
  const int lane = static_cast<int>(threadIdx.x & 31);  // lanes 0 to 2: itself, its pair, the one with its tokens
  if (lane <= Tile::kAcross) hopper::barrier_arrive_at(ring.empty + i % Tile::kDepth, rank ^ lane);
}

// The gate of 64 tokens goes to shared memory, and from there to out.
template <class Tile>
__device__ __forceinline__ void store_gate(const float (&acc)[Tile::kHalf], char* to, const CUtensorMap& out_map,
                                           int token, int column, int group) {
  constexpr int kBox = 64 * 64 * 2;
  const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const bool leads = threadIdx.x % 128 == 0;
  if (leads) hopper::store_read();  // the boxes of the tile before have left
  hopper::group_sync(1 + group, 128);
#pragma unroll
  for (int j = 0; j < Tile::kHalf / 2; j += 2) {
    const auto gated = [&](int i) { return __fdividef(acc[i], 1.0f + __expf(-acc[i])) * acc[Tile::kHalf / 2 + i]; };
    const int r = row + j / 2 % 2 * 8, c = j / 4 * 8 + lane % 4 * 2;
    char* at =
        Tile::kBoxes ? to + c / 64 * kBox + r * 128 + ((c % 64 * 2) ^ (r % 8 * 16)) : to + (r * Tile::kHalf + c) * 2;
    *reinterpret_cast<uint32_t*>(at) = pack2(gated(j), gated(j + 1));
  }
  hopper::shared_to_engine();
  hopper::group_sync(1 + group, 128);
  if (!leads) return;
  hopper::store_box(&out_map, to, column, token);
  if constexpr (Tile::kBoxes) {
#pragma unroll
    for (int c = 64; c < Tile::kHalf; c += 64) hopper::store_box(&out_map, to + c / 64 * kBox, column + c, token);
  }
  hopper::store_commit();
}

template <class Tile>
__device__ void multiply_gate(const GateRing<Tile>& ring, const CUtensorMap& out_map, const GateGrid& grid, int rank,
                              char* staging) {
  const GatePlace place(rank);
  const int group = threadIdx.x / 128, tiles = grid.pairs * grid.weight_groups;
  float acc[Tile::kHalf];
  int i = 0;
  for (int index = static_cast<int>(blockIdx.x) / Tile::kCluster; index < tiles;
       index += static_cast<int>(gridDim.x) / Tile::kCluster) {
    for (int k = 0; k < grid.k_tiles; ++k, ++i) {
      const int s = i % Tile::kDepth;
      const uint64_t a = hopper::tile_descriptor(hopper::shared_address(ring.x(s)) + group * 64 * Tile::kK * 2);
      const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.weight(s, 0)));
      hopper::barrier_wait(ring.full + s, static_cast<uint32_t>(i / Tile::kDepth) & 1);
      hopper::wgmma_fence();
#pragma unroll
      for (int step = 0; step < Tile::kK / 16; ++step) {
        hopper::Wgmma<2 * Tile::kHalf>::run(acc, a + 2 * step, b + 2 * step, k + step > 0);
      }
      hopper::wgmma_commit();
      hopper::wgmma_wait<1>();
      if (k > 0) release(ring, rank, i - 1);
    }
    hopper::wgmma_wait<0>();
    release(ring, rank, i - 1);
    const int2 tile = gate_tile(grid, index);
    store_gate<Tile>(acc, staging + group * Tile::kOut, out_map,
                     (tile.x * kGatePair + place.token) * kGateTokens + group * 64,
                     (tile.y * Tile::kAcross + place.across) * Tile::kHalf, group);
  }
  if (threadIdx.x % 128 == 0) hopper::store_read();
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kBound, 1)
    gate_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                const __grid_constant__ CUtensorMap out_map, const GateGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[2 * Tile::kDepth];
  let_next_start();
  const uint32_t at = hopper::shared_address(memory);
  const GateRing<Tile> ring{memory + ((at + 1023) / 1024 * 1024 - at), barriers, barriers + Tile::kDepth};
  const int rank = hopper::cluster_rank();
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kDepth; ++s) {
      hopper::barrier_init(ring.full + s, 1);
      hopper::barrier_init(ring.empty + s, (1 + Tile::kAcross) * Tile::kWorkers / 32);
    }
    hopper::barrier_init_done();
  }
  hopper::cluster_sync();
  if (threadIdx.x >= Tile::kWorkers) {
    hopper::registers_down<40>();
    if (threadIdx.x == Tile::kWorkers) fill_gate(ring, weight_map, x_map, grid, rank);
    __syncwarp();
  } else {
    hopper::registers_up<Tile::kMost>();
    multiply_gate(ring, out_map, grid, rank, ring.stages + Tile::kDepth * Tile::kStage);
  }
  hopper::cluster_sync();  // nobody leaves while the other one's copies and arrivals come here
}

// Clusters that run at once.
template <class Tile>
int64_t gate_clusters(device::Stream stream) {
  if constexpr (Tile::kAcross == 1) return state(stream).multiprocessors / Tile::kCluster;
  static ClusterCount count;
  return std::max(1, count.of("gemm_gate_four", gate_kernel<Tile>,
                              {dim3(1), Tile::kThreads, Tile::kBytes, Tile::kCluster}, 1, stream));
}

template <class Tile>
Status launch_gate(const Gemm& g, const void* weight, device::Stream stream) {
  GateGrid grid;
  grid.half = static_cast<int>(g.n / 2);
  grid.pairs = static_cast<int>(blocks_for(g.rows, kGatePair * kGateTokens));
  grid.weight_groups = static_cast<int>(blocks_for(grid.half, Tile::kAcross * Tile::kHalf));
  grid.k_tiles = static_cast<int>(blocks_for(g.k, Tile::kK));
  CUtensorMap weight_map, x_map, out_map;
  TERN_RETURN_IF_ERROR(tensor_map(weight, g.n, g.k, g.w_row, Tile::kHalf, &weight_map));
  TERN_RETURN_IF_ERROR(tensor_map(g.x, g.rows, g.k, g.x_row, kGateTokens / Tile::kAcross, &x_map));
  if constexpr (Tile::kBoxes) {
    TERN_RETURN_IF_ERROR(tensor_map(g.out, g.rows, grid.half, g.out_row, 64, &out_map));
  } else {
    TERN_RETURN_IF_ERROR(tensor_map_plain(g.out, g.rows, grid.half, g.out_row, Tile::kHalf, 64, &out_map));
  }
  const int64_t tiles = int64_t{grid.pairs} * grid.weight_groups;
  const auto blocks = static_cast<unsigned>(Tile::kCluster * std::min(tiles, gate_clusters<Tile>(stream)));
  return launch(stream, Tile::kAcross == 1 ? "gemm_gate" : "gemm_gate_four",
                {blocks, Tile::kThreads, Tile::kBytes, Tile::kCluster}, gate_kernel<Tile>, weight_map, x_map, out_map,
                grid);
}

using Wide = GateTile<kGateWide.half, kGateWide.across>;
using Narrow = GateTile<kGateNarrow.half, kGateNarrow.across>;
using Small = GateTile<kGateSmall.half, kGateSmall.across>;

}  // namespace

void count_gate_clusters(ClusterFacts& facts, device::Stream stream) {
  facts.gate_narrow = static_cast<int>(gate_clusters<Narrow>(stream));
  facts.gate_small = static_cast<int>(gate_clusters<Small>(stream));
}

Status gemm_gate(const Gemm& g, const void* weight, GemmKernel kernel, device::Stream stream) {
  if (kernel == GemmKernel::kGateSmall) return launch_gate<Small>(g, weight, stream);
  if (kernel == GemmKernel::kGateNarrow) return launch_gate<Narrow>(g, weight, stream);
  return launch_gate<Wide>(g, weight, stream);
}

}  // namespace tern::cuda
