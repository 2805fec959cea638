// Tiles of gemm_large_tile.cuh with 128 rows of the weight, and which products in deterministic mode take which tiles.
#include "base/checked.h"
#include "cuda/gemm/sm90/gemm_large_tile_run.cuh"

namespace tern::cuda {
namespace {

// Rows of the weight that a multiprocessor passes at most, for tiles of so many.
int64_t large_tile_time(const Gemm& g, int64_t tile, int split, device::Stream stream) {
  const int pair = g.rows > 64 ? 2 : 1;
  const int64_t tokens = g.rows > 128 ? 256 : g.rows;
  const int64_t jobs = blocks_for(g.n, tile * pair) * blocks_for(g.rows, tokens) * split;
  return tile * blocks_for(jobs, state(stream).multiprocessors / pair);
}

// Whether all parts' blocks run at once.
bool large_tile_room(const Gemm& g, int64_t tile, int split, device::Stream stream) {
  const StreamState& s = state(stream);
  if (split == 1) return true;
  const int64_t pair = g.rows > 64 ? 2 : 1, tiles = blocks_for(g.n, tile * pair) * pair;
  return s.waits && s.parts != nullptr && g.rows <= 256 && tiles * split <= s.multiprocessors / pair * pair;
}

// A gate wants gate and up whole in one thread; where tiles of 192 rows fill the GPU once, k is not cut.
bool whole_gate(const Gemm& g, device::Stream stream) {
  const int64_t tiles = blocks_for(g.n, 192), all = state(stream).multiprocessors;
  return g.gated && g.n * g.k >= kLargeWeight && tiles <= all / 2 * 2 && 8 * tiles >= 7 * all;
}

int large_tile_split(const Gemm& g, device::Stream stream) { return whole_gate(g, stream) ? 1 : wgmma_split(g.n, g.k); }

bool gated_fits(const Gemm& g) {
  return g.out_bf16 && g.bias == nullptr && g.n % 16 == 0 && g.k % 64 == 0 && g.out_row % 2 == 0 &&
         reinterpret_cast<uintptr_t>(g.out) % 4 == 0;
}

enum class LargeTileKernel : uint8_t { kOther, kGated, kCluster, kTall, kLow, kSums };  // kOther: gemm_wgmma

LargeTileKernel kernel_of(const Gemm& g, int split, device::Stream stream) {
  if (g.n * g.k < kLargeWeight || (!g.gated && g.out_bf16)) return LargeTileKernel::kOther;
  if (cluster_fits(g, stream)) return LargeTileKernel::kCluster;
  const int64_t low = large_tile_time(g, 128, split, stream), tall = large_tile_time(g, 192, split, stream);
  if (g.gated) return split > 1 || tall > low || !gated_fits(g) ? LargeTileKernel::kOther : LargeTileKernel::kGated;
  // Few rows: weights pass through smaller blocks, of which a multiprocessor has more, as fast.
  if (split == 1 && g.rows <= 32) return LargeTileKernel::kOther;
  const bool low_room = large_tile_room(g, 128, split, stream);
  const bool tall_room = large_tile_room(g, 192, split, stream) && (split == 1 || g.rows > 64);
  if (tall_room && (tall <= low || !low_room)) return LargeTileKernel::kTall;
  if (low_room) return LargeTileKernel::kLow;
  return g.rows > 256 ? LargeTileKernel::kSums : LargeTileKernel::kOther;
}

}  // namespace

Status run_large_tile_128(const Gemm& g, const void* weight, int split, device::Stream stream) {
  return run_tile<2, false>(g, weight, split, stream);
}

// Others are ahead with few rows and many, and where k is not long, unless its parts in tiles of 128 rows fill the GPU.
bool large_tile_takes(const Gemm& g, device::Stream stream) {
  const int split = large_tile_split(g, stream);
  const LargeTileKernel kernel = kernel_of(g, split, stream);
  if (kernel == LargeTileKernel::kOther) return false;
  if (g.gated) return g.rows > kWgmmaRows;
  if (kernel == LargeTileKernel::kCluster) return true;
  const bool full = kernel == LargeTileKernel::kLow && split > 1 &&
                    8 * blocks_for(g.n, 128) * split >= 7 * int64_t{state(stream).multiprocessors};
  const bool long_k = g.k >= 2 * g.n;
  if (g.rows > kLargeTileRows) return false;
  return g.rows > kWgmmaRows ? full || long_k : g.rows > 32 && full && long_k;
}

int parts_of(const Gemm& g, device::Stream stream) {
  const int split = large_tile_split(g, stream);
  const LargeTileKernel kernel = kernel_of(g, split, stream);
  return kernel == LargeTileKernel::kLow || kernel == LargeTileKernel::kTall ? split : 1;
}

Status gemm_large_tile(const Gemm& g, const void* weight, device::Stream stream) {
  const int split = large_tile_split(g, stream);
  switch (kernel_of(g, split, stream)) {
    case LargeTileKernel::kGated:
      return run_large_tile_gated(g, weight, stream);
    case LargeTileKernel::kCluster:
      return run_large_tile_cluster(g, weight, stream);
    case LargeTileKernel::kTall:
      return run_large_tile_192(g, weight, split, stream);
    case LargeTileKernel::kLow:
      return run_large_tile_128(g, weight, split, stream);
    case LargeTileKernel::kSums:
      return run_large_tile_sums(g, weight, split, stream);
    case LargeTileKernel::kOther:
      break;
  }
  return gemm_wgmma(g, weight, split, stream);
}

}  // namespace tern::cuda
