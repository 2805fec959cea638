// Tiles of gemm_fixed.cuh outside deterministic mode whose tokens four blocks share: where the tiles of a large weight
// nearly fill the GPU once, what all of them read of the tokens is as much as the weight itself. Of a vocabulary teams
// take one tile after the other, many of them, so that it does not matter how many the last turn has.
#include "cuda/gemm_fixed_run.cuh"

namespace tern::cuda {
namespace {

using Team64 = FixedTile<64, 2, 9, false, false, 4>;
using Team128 = FixedTile<128, 2, 7, false, false, 4>;

}  // namespace

bool team_fits(const Gemm& g, device::Stream stream) {
  const StreamState& s = state(stream);
  if (s.deterministic || g.gated || g.out_bf16 || g.n * g.k < kLargeWeight || g.rows <= 16 || g.rows > 128) {
    return false;
  }
  constexpr int64_t kTurns = 8;
  const int64_t teams = blocks_for(g.n, int64_t{Team64::kRows} * Team64::kTeam);
  if (Team64::kTeam * teams * 5 < int64_t{s.multiprocessors} * 4) return false;
  const int64_t most = g.rows <= 64 ? teams_at_once<Team64>(stream) : teams_at_once<Team128>(stream);
  return teams <= most || teams >= kTurns * most;
}

// Fewer tokens than a tile has cost no more: nobody reads what is not there.
Status run_fixed_team(const Gemm& g, const void* weight, device::Stream stream) {
  if (g.rows <= 64) return run_fixed<Team64>(g, weight, 1, "gemm_fixed_team_64", stream);
  return run_fixed<Team128>(g, weight, 1, "gemm_fixed_team_128", stream);
}

}  // namespace tern::cuda
