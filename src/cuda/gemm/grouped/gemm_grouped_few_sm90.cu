// Products with one weight per expert and few rows each, where reading the weights is all there is to do: a block per
// multiprocessor takes an equal share of all units of 16 weight rows. A warp keeps its ring filled through the copy
// engine; eight warps deal k out among themselves and hold their part of an expert's tokens in registers. Rings are
// small enough for the blocks of two launches on one multiprocessor, and a block of the first product of a layer asks
// for so much that no second one of its launch fits beside it: while it ends, the second product, which experts it has
// to read being known, fills its own ring on every multiprocessor.
#include <algorithm>

#include "cuda/gemm/gemm.h"
#include "cuda/gemm/portable/gemm_mma.cuh"
#include "cuda/ptx/hopper_units.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

constexpr int kUnitRows = 16, kTokens = kFewTokens;
constexpr int kWarps = 8, kWorkers = 32 * kWarps, kThreads = kWorkers + 32;
constexpr int kMostTiles = kMostFewTiles, kEach = kMostGroups / 32;
constexpr int kRing = 96 << 10, kAhead = 96 << 10;  // bytes of the ring; behind it, that are brought into the cache
constexpr int kAlone = 107 << 10;  // bytes that a block asks for, which with its own are more than half of the memory
constexpr int kMostDepth = kRing / (kUnitRows * 256 * 2);
static_assert(kAlone >= kRing + 1024);

// k of the weight: kSteps stages of kChunk values, of which a warp has kRuns runs of 32.
template <int kChunk_, int kSteps_>
struct FewSteps {
  static constexpr int kChunk = kChunk_, kSteps = kSteps_, kPlanes = kChunk / 64, kRuns = kChunk / 256;
  static constexpr int kBytes = kUnitRows * kChunk * 2;
};

struct FewGrid {
  int units = 0;         // of one weight
  int depth = 0;         // stages of the ring
  int ahead = 0;         // stages behind them that are brought into the cache
  bool settled = false;  // the offsets were there before the kernel before this one began to write
};

struct FewShared {
  uint64_t full[kMostDepth], empty[kMostDepth];
  RowTile tiles[kMostTiles];
  int begin, end;  // this block's units, all tiles counted
  float4 parts[2][kWarps][32];
};

// The share of this block, and the row tiles that it touches, the first of them in sh.tiles[0]. One warp.
__device__ void find_share(FewShared& sh, const Gemm& g, const FewGrid& grid) {
  const int lane = threadIdx.x & 31, each = (g.groups + 31) / 32, first = lane * each;
  int at[kEach + 1];
#pragma unroll
  for (int i = 0; i <= kEach; ++i) at[i] = i <= each ? g.offsets[min(first + i, g.groups)] : 0;
  int tiles = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) tiles += i < each ? (at[i + 1] - at[i] + kTokens - 1) / kTokens : 0;
  int sum = tiles;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= d) sum += other;
  }
  const int64_t units = int64_t{__shfl_sync(0xffffffffu, sum, 31)} * grid.units;
  const auto begin = static_cast<int>(units * blockIdx.x / gridDim.x),
             end = static_cast<int>(units * (blockIdx.x + 1) / gridDim.x);
  const int tile0 = begin / grid.units, tile1 = (end + grid.units - 1) / grid.units;
  if (lane == 0) sh.begin = begin - tile0 * grid.units, sh.end = end - tile0 * grid.units;
  int tile = sum - tiles;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (i >= each) break;
    for (int row = at[i]; row < at[i + 1]; row += kTokens, ++tile) {
      if (tile >= tile0 && tile < tile1 && tile - tile0 < kMostTiles) {
        sh.tiles[tile - tile0] = {first + i, row, min(row + kTokens, at[i + 1])};
      }
    }
  }
}

// The next stage of a share: which unit of which tile, which part of k.
template <class Steps>
struct FewPlace {
  int left, unit, tile = 0, step = 0, plane = 0;
  template <class Plane>
  __device__ __forceinline__ FewPlace(const FewShared& sh, Plane&& plane_of)
      : left((sh.end - sh.begin) * Steps::kSteps), unit(sh.begin) {
    if (left > 0) plane = plane_of(0);
  }
  template <class Plane>
  __device__ __forceinline__ void next(int units, Plane&& plane_of) {
    --left;
    if (++step < Steps::kSteps) return;
    step = 0;
    if (++unit < units) return;
    unit = 0, ++tile;
    if (left > 0) plane = plane_of(tile);
  }
};

template <class Steps, int kCount>
__device__ void fill_few(FewShared& sh, const CUtensorMap& map, const char* base, const WeightTable<kCount>& table,
                         const FewGrid& grid, char* ring) {
  const auto plane_of = [&](int tile) {
    return static_cast<int>((static_cast<const char*>(table.w[sh.tiles[tile].group]) - base) / 128);
  };
  FewPlace<Steps> at(sh, plane_of);
  for (int round = 0; at.left > 0; ++round) {
    for (int s = 0; s < grid.depth && at.left > 0; ++s) {
      if (round > 0) hopper::barrier_wait(sh.empty + s, static_cast<uint32_t>(round - 1) & 1);
      hopper::barrier_expect(sh.full + s, Steps::kBytes);
      hopper::load_units(ring + s * Steps::kBytes, &map, sh.full + s, at.unit, at.plane + at.step * Steps::kPlanes,
                         hopper::kEvictFirst);
      at.next(grid.units, plane_of);
    }
    if (round > 0) continue;
    FewPlace<Steps> later = at;
    for (int i = 0; i < grid.ahead && later.left > 0; ++i) {
      hopper::prefetch_units(&map, later.unit, later.plane + later.step * Steps::kPlanes);
      later.next(grid.units, plane_of);
    }
  }
}

// A lane's part of the tokens of a tile: token lane/4, eight values of every 32 of k.
template <class Steps>
struct FewTokens {
  uint4 v[Steps::kSteps][Steps::kRuns];
  __device__ __forceinline__ void load(const Gemm& g, const RowTile& tile) {
    const int lane = threadIdx.x & 31, k = static_cast<int>(threadIdx.x) / 32 * 32 + lane % 4 * 8;
    const int64_t row = tile.row0 + lane / 4;
    const bf* x = static_cast<const bf*>(g.x) + row * g.x_row + k;
#pragma unroll
    for (int i = 0; i < Steps::kSteps * Steps::kRuns; ++i) {
      v[i / Steps::kRuns][i % Steps::kRuns] =
          row < tile.row_end ? *reinterpret_cast<const uint4*>(x + i * 256) : make_uint4(0, 0, 0, 0);
    }
  }
};

__device__ __forceinline__ void store_one(const Gemm& g, int64_t row, int64_t col, float v) {
  if (g.out_bf16) {
    static_cast<bf*>(g.out)[row * g.out_row + col] = from_float<bf>(v);
  } else {
    static_cast<float*>(g.out)[row * g.out_row + col] = v;
  }
}

// What the warps have of a unit, added in their order. `r`: which of eight rows a lane has, in both halves.
__device__ void store_unit(const Gemm& g, const float4 (*parts)[32], const RowTile& tile, int unit, int r) {
  const int lane = threadIdx.x & 31;
  float4 sum = parts[0][lane];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) {
    const float4 v = parts[w][lane];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  const int64_t row = tile.row0 + lane % 4 * 2;
  if (g.gated) {
    if (row < tile.row_end) store_one(g, row, unit * 8 + r, silu(sum.x) * sum.z);
    if (row + 1 < tile.row_end) store_one(g, row + 1, unit * 8 + r, silu(sum.y) * sum.w);
    return;
  }
  if (row < tile.row_end) store_one(g, row, unit * 16 + r, sum.x), store_one(g, row, unit * 16 + 8 + r, sum.z);
  if (row + 1 >= tile.row_end) return;
  store_one(g, row + 1, unit * 16 + r, sum.y), store_one(g, row + 1, unit * 16 + 8 + r, sum.w);
}

// The units of a block. A lane's rows of eight are such that eight lanes in turn fall into different banks; its values
// of k are eight neighbours of 32: their order is free as long as both sides have the same.
template <class Steps>
__device__ void multiply_few(FewShared& sh, const Gemm& g, const FewGrid& grid, const char* ring) {
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const int r = lane / 8 + lane / 4 % 2 * 4;
  const int at = warp / 2 * (kUnitRows * 128) + r * 128 + ((warp % 2 * 4 + lane % 4) ^ r) * 16;
  FewTokens<Steps> x;
  int s = 0, turn = 0, unit = sh.begin, tile_index = 0;
  uint32_t phase = 0;
  RowTile tile{};
  for (int left = sh.end - sh.begin; left > 0; --left) {
    if (unit == grid.units) unit = 0, ++tile_index;
    if (unit == 0 || left == sh.end - sh.begin) tile = sh.tiles[tile_index], x.load(g, tile);
    float acc[2][4] = {};
#pragma unroll
    for (int i = 0; i < Steps::kSteps; ++i) {
      hopper::barrier_wait(sh.full + s, phase);
      const char* from = ring + s * Steps::kBytes + at;
      uint4 w[Steps::kRuns][2];
#pragma unroll
      for (int j = 0; j < Steps::kRuns; ++j) {
        w[j][0] = *reinterpret_cast<const uint4*>(from + j * (4 * kUnitRows * 128));
        w[j][1] = *reinterpret_cast<const uint4*>(from + j * (4 * kUnitRows * 128) + 1024);
      }
#pragma unroll
      for (int j = 0; j < Steps::kRuns; ++j) {
        const uint4 &a = w[j][0], &c = w[j][1], &b = x.v[i][j];
        mma(acc[0], {a.x, c.x, a.y, c.y}, {b.x, b.y});
        mma(acc[1], {a.z, c.z, a.w, c.w}, {b.z, b.w});
      }
      __syncwarp();
      if (lane == 0) hopper::barrier_arrive(sh.empty + s);
      if (++s == grid.depth) s = 0, phase ^= 1;
    }
    sh.parts[turn][warp][lane] =
        make_float4(acc[0][0] + acc[1][0], acc[0][1] + acc[1][1], acc[0][2] + acc[1][2], acc[0][3] + acc[1][3]);
    hopper::group_sync(1, kWorkers);
    if (warp == left % kWarps) store_unit(g, sh.parts[turn], tile, unit, r);
    turn ^= 1, ++unit;
  }
}

template <class Steps, int kCount>
__global__ void __launch_bounds__(kThreads, Steps::kSteps* Steps::kRuns <= 8 ? 2 : 1)
    few_kernel(const __grid_constant__ CUtensorMap map, const char* base, const Gemm g,
               const __grid_constant__ WeightTable<kCount> table, const FewGrid grid) {
  extern __shared__ __align__(16) char memory[];
  __shared__ FewShared sh;
  char* const ring = memory + (1024 - hopper::shared_address(memory) % 1024) % 1024;
  if (threadIdx.x == 0) {
    for (int s = 0; s < grid.depth; ++s) {
      hopper::barrier_init(sh.full + s, 1);
      hopper::barrier_init(sh.empty + s, kWarps);
    }
    hopper::barrier_init_done();
  }
  if (threadIdx.x == kWorkers) hopper::prefetch_map(&map);
  if (threadIdx.x < 32 || threadIdx.x >= kWorkers) bring_parameters(g, table, grid);
  // Which weights there are to read is a result of a launch before.
  if (!grid.settled) wait_for_previous();
  if (threadIdx.x >= kWorkers) find_share(sh, g, grid);
  __syncthreads();
  if (threadIdx.x >= kWorkers) {
    if (threadIdx.x == kWorkers) fill_few<Steps>(sh, map, base, table, grid, ring);
    return;
  }
  wait_for_previous();
  // After the wait: who starts now finds everything done that was launched before this kernel.
  let_next_start();
  multiply_few<Steps>(sh, g, grid, ring);
}

template <class Steps, int kCount>
Status launch_few(const Gemm& g, const void* const* weights, device::Stream stream) {
  WeightTable<kCount> table{};
  for (int i = 0; i < g.groups; ++i) table.w[i] = weights[i];
  const auto* base = static_cast<const char*>(*std::min_element(weights, weights + g.groups));
  CUtensorMap map;
  TERN_RETURN_IF_ERROR(tensor_map_units(base, g.n, g.w_row, g.gated, 1, Steps::kPlanes, &map));
  FewGrid grid;
  grid.units = static_cast<int>(g.n / kUnitRows);
  grid.depth = kRing / Steps::kBytes;
  grid.settled = state(stream).settled == g.offsets;
  grid.ahead = grid.settled ? kAhead / Steps::kBytes : 0;
  const size_t bytes = grid.settled ? size_t{1024} + static_cast<size_t>(grid.depth) * Steps::kBytes : size_t{kAlone};
  const auto kernel = few_kernel<Steps, kCount>;
  constexpr const char* kName = "gemm_wgmma_grouped_few";
  const Shape shape{static_cast<unsigned>(state(stream).multiprocessors), kThreads, bytes};
  const Status done = launch(stream, kName, shape, kernel, map, base, g, table, grid);
  state(stream).settled = g.offsets;
  return done;
}

template <int kChunk, int kSteps>
Status launch_steps(const Gemm& g, const void* const* weights, device::Stream stream) {
  using Steps = FewSteps<kChunk, kSteps>;
  if (g.groups <= 128) return launch_few<Steps, 128>(g, weights, stream);
  return launch_few<Steps, kMostGroups>(g, weights, stream);
}

}  // namespace

Status gemm_grouped_few(const Gemm& g, const void* const* weights, device::Stream stream) {
  switch (g.k) {
    case 256:
      return launch_steps<256, 1>(g, weights, stream);
    case 512:
      return launch_steps<512, 1>(g, weights, stream);
    case 768:
      return launch_steps<768, 1>(g, weights, stream);
    case 1024:
      return launch_steps<512, 2>(g, weights, stream);
    case 1536:
      return launch_steps<768, 2>(g, weights, stream);
    case 2048:
      return launch_steps<512, 4>(g, weights, stream);
    case 2560:
      return launch_steps<512, 5>(g, weights, stream);
    default:
      return launch_steps<512, 8>(g, weights, stream);
  }
}

}  // namespace tern::cuda
