// Tiles of gemm_large_tile.cuh outside deterministic mode whose tokens four blocks share: where the tiles of a large
// weight nearly fill the GPU once, what all of them read of the tokens is as much as the weight itself. Of a vocabulary
// clusters take one tile after the other, many of them, so that it does not matter how many the last turn has. Of more
// than 64 tokens smaller weights take tiles of 64 rows.
#include "cuda/gemm/sm90/gemm_large_tile_run.cuh"

namespace tern::cuda {
namespace {

using Cluster64 = LargeTileDims<64, 2, 9, false, false, 4>;
using Cluster128 = LargeTileDims<128, 2, 7, false, false, 4>;
using Slim128 = LargeTileDims<128, 1, 8, false, false, 4>;

bool wanted(const Gemm& g, device::Stream stream) {
  return !state(stream).deterministic && !g.gated && !g.out_bf16 && g.n * g.k >= kLargeWeight && g.rows > 16 &&
         g.rows <= 128;
}

// Tiles of 64 rows, where those of 128 would leave half of the GPU without one. As fast as cuBLASLt's, but they start
// under what is before them.
bool slim_fits(const Gemm& g, device::Stream stream) {
  if (!wanted(g, stream) || g.rows <= kWgmmaRows) return false;
  const int64_t clusters = blocks_for(g.n, int64_t{Slim128::kRows} * Slim128::kClusterSize);
  return Slim128::kClusterSize * clusters * 10 >= int64_t{state(stream).multiprocessors} * 7 &&
         clusters <= clusters_at_once<Slim128>(stream);
}

}  // namespace

bool cluster_fits(const Gemm& g, device::Stream stream) {
  if (slim_fits(g, stream)) return true;
  if (!wanted(g, stream)) return false;
  const StreamState& s = state(stream);
  constexpr int64_t kTurns = 8;
  const int64_t clusters = blocks_for(g.n, int64_t{Cluster64::kRows} * Cluster64::kClusterSize);
  if (Cluster64::kClusterSize * clusters * 5 < int64_t{s.multiprocessors} * 4) return false;
  const int64_t most = g.rows <= 64 ? clusters_at_once<Cluster64>(stream) : clusters_at_once<Cluster128>(stream);
  return clusters <= most || clusters >= kTurns * most;
}

// Fewer tokens than a tile has cost no more: nobody reads what is not there.
Status run_large_tile_cluster(const Gemm& g, const void* weight, device::Stream stream) {
  if (slim_fits(g, stream)) return run_large_tile<Slim128>(g, weight, 1, "gemm_large_tile_slim_128", stream);
  if (g.rows <= 64) return run_large_tile<Cluster64>(g, weight, 1, "gemm_large_tile_cluster_64", stream);
  return run_large_tile<Cluster128>(g, weight, 1, "gemm_large_tile_cluster_128", stream);
}

}  // namespace tern::cuda
