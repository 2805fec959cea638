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

}  // namespace

void count_large_tile_clusters(ClusterFacts& facts, device::Stream stream) {
  facts.large_tile_slim = clusters_at_once<Slim128>(stream);
  facts.large_tile_64 = clusters_at_once<Cluster64>(stream);
  facts.large_tile_128 = clusters_at_once<Cluster128>(stream);
}

Status gemm_large_tile_slim(const Gemm& g, const void* weight, device::Stream stream) {
  return run_large_tile<Slim128>(g, weight, 1, "gemm_large_tile_slim_128", stream);
}

// Fewer tokens than a tile has cost no more: nobody reads what is not there.
Status gemm_large_tile_cluster(const Gemm& g, const void* weight, device::Stream stream) {
  if (g.rows <= 64) return run_large_tile<Cluster64>(g, weight, 1, "gemm_large_tile_cluster_64", stream);
  return run_large_tile<Cluster128>(g, weight, 1, "gemm_large_tile_cluster_128", stream);
}

}  // namespace tern::cuda
