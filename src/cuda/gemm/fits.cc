#include "cuda/gemm/fits.h"

#include <algorithm>

#include "base/checked.h"

namespace tern::cuda {
namespace {

bool at(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

bool aligned(const Gemm& g) {
  const int64_t bytes = g.x_bf16 ? 2 : 4;
  return at(g.x, 16) && g.x_row * bytes % 16 == 0 && g.x_head * bytes % 16 == 0;
}

int64_t tiles_of(int64_t n, int64_t rows) { return ceil_div(n, rows); }

}  // namespace

bool mma_fits(const Gemm& g) { return g.x_bf16 && g.w_bf16 && aligned(g); }
bool gemv_fits(const Gemm& g) { return g.rows <= kGemvRows && g.groups == 1 && aligned(g) && g.k % 8 == 0; }
bool mixed_fits(const Gemm& g) {
  return g.x_bf16 && !g.w_bf16 && g.groups == 1 && g.k % 8 == 0 && g.x_row % 4 == 0 && at(g.x, 8) &&
         g.rows <= 65535 * int64_t{kMixedTokens};
}

namespace {

// Whether gemm_splitk_dsmem is ahead of gemm_register_resident and gemm_smem_resident, too.
bool splitk_dsmem_few(const Gemm& g, const GemmFacts& f) {
  constexpr int64_t kLeast = int64_t{2} << 20, kLeastRows = 3;
  return f.sm90_files && g.rows >= kLeastRows && g.n * g.k >= kLeast && splitk_dsmem_fits(g, wgmma_split(g.n, g.k));
}

}  // namespace

bool register_resident_fits(const Gemm& g, const GemmFacts& f) {
  return mma_fits(g) && g.rows <= kRegisterResidentRows && g.n * g.k <= kLargeWeight && !splitk_dsmem_few(g, f);
}

bool many_resident_blocks(const Gemm& g, int multiprocessors) {
  return tiles_of(g.n, 16) > int64_t{kBlocksTogether} * multiprocessors;
}

// Where many blocks are to share a multiprocessor with weights of two runs no register is left for norms behind them.
bool register_resident_normed(const Gemm& g, const GemmFacts& f) {
  if (smem_resident_fits(g, f)) return true;
  return tiles_of(g.k, kResidentRun) <= 8 || !many_resident_blocks(g, f.multiprocessors);
}

// The norm's sums are of 16 columns and more.
bool register_resident_scaled(const Gemm& g, const GemmFacts& f) {
  return register_resident_normed(g, f) || (g.k <= 16 * kKeptSquares && g.rows <= 8);
}

int smem_resident_warps(const Gemm& g) {
  return std::max(kLeastSmemWarps, static_cast<int>(tiles_of(g.k, 64 * kSmemPlanes)));
}

size_t smem_resident_bytes(int warps) {
  constexpr size_t kParts = 32 * 4 * sizeof(float);  // of a warp
  return 1024 + static_cast<size_t>(warps) * (kSmemPlanes * kSmemPlaneBytes + kParts);
}

bool smem_resident_fits(const Gemm& g, const GemmFacts& f) {
  if (!f.hopper() || !f.sm90_files || !register_resident_fits(g, f)) return false;
  if (g.n % 16 != 0 || g.k % 64 != 0 || g.k > 64 * kSmemPlanes * kMostSmemWarps) return false;
  // A multiprocessor has 228 KiB, of which a block takes one for the system, and some for barriers and scales.
  const auto block = static_cast<int64_t>(smem_resident_bytes(smem_resident_warps(g))) + 1792;
  return g.n / 16 <= f.multiprocessors * (int64_t{228} * 1024 / block);
}

int single_wave_rows(const Gemm& g, int multiprocessors) {
  const int64_t all = multiprocessors;
  for (const int rows : {112, 48, kSingleWaveWidth}) {
    const int64_t tiles = g.n / rows;
    if (g.n % rows == 0 && tiles <= all && 20 * tiles >= 19 * all) return rows;
  }
  return 0;
}

namespace {

// Gates whose halves of k, in tiles of 128 rows, just fill three blocks per multiprocessor.
bool three_each(const Gemm& g, const GemmFacts& f) {
  const int64_t blocks = tiles_of(g.n, 64), all = f.multiprocessors;
  return g.n % 64 == 0 && blocks > 2 * all && blocks <= 3 * all && 20 * blocks >= 57 * all;
}

}  // namespace

// Tokens up to which tiles are even. Of more, what all blocks read of the tokens counts beside the weight, and
// attention finds no room beside blocks that have a multiprocessor for themselves.
bool single_wave_fits(const Gemm& g, const GemmFacts& f) {
  constexpr int64_t kGated = 32, kPlain = 16, kNorm = 8;
  if (!f.sm90_files || f.deterministic || g.n * g.k < kLargeWeight || streamk_fits(g, f)) return false;
  if (g.gated) return g.rows <= kGated && three_each(g, f);
  const int rows = g.rows <= kPlain ? single_wave_rows(g, f.multiprocessors) : 0;
  if (rows == kSingleWaveWidth) return g.rows <= kNorm;
  return rows > 0 && g.after.residual == nullptr;
}

bool streamk_fits(const Gemm& g, const GemmFacts& f) {
  const int64_t tiles = tiles_of(g.n, 128), most = int64_t{1} << 31;
  return f.sm90_files && mma_fits(g) && f.parts && !g.gated && g.rows <= kStreamKRows && g.k >= 2 * g.n &&
         g.n * g.k > kLargeWeight && 8 * tiles <= kTickets &&
         tiles * tiles_of(g.k, 128) < most / (f.multiprocessors + 1);
}

int wgmma_split(int64_t n, int64_t k) {
  const int64_t tiles = tiles_of(n, 128), k_tiles = tiles_of(k, 64);
  int split = 1;
  while (split < 8 && tiles * split * 2 <= 224 && k_tiles / (split * 2) >= 4) split *= 2;
  // Halves of these just fill three blocks per multiprocessor.
  if (split == 1 && tiles > 170 && tiles <= 198 && k_tiles >= 32) split = 2;
  return split;
}

// Cutting k fills the GPU when there are few tiles. In deterministic mode it is cut alike for any number of rows.
int wgmma_split(const Gemm& g, const GemmFacts& f) {
  int split = wgmma_split(g.n, g.k);
  if (f.deterministic || g.rows <= 256) return split;
  const int64_t tiles = tiles_of(g.n, 128) * tiles_of(g.rows, 256);
  while (split > 1 && tiles * split > f.multiprocessors) split /= 2;
  return split;
}

// Of larger weights gemm_wgmma is ahead: its blocks copy x less often.
bool splitk_dsmem_fits(const Gemm& g, int split) {
  constexpr int64_t kPlain = int64_t{5} << 20, kGated = int64_t{6} << 20, kMostRows = 64;  // values of the weight
  if (split == 1 || g.rows > kMostRows) return false;
  return g.gated ? g.n * g.k <= kGated && g.n % 16 == 0 && g.k % 64 == 0 : g.n * g.k <= kPlain;
}

namespace {

// Rows of the weight that a multiprocessor passes at most, for tiles of so many.
int64_t large_tile_time(const Gemm& g, int64_t tile, int split, const GemmFacts& f) {
  const int pair = g.rows > 64 ? 2 : 1;
  const int64_t tokens = g.rows > 128 ? 256 : g.rows;
  const int64_t jobs = tiles_of(g.n, tile * pair) * tiles_of(g.rows, tokens) * split;
  return tile * tiles_of(jobs, f.multiprocessors / pair);
}

// Whether all parts' blocks run at once.
bool large_tile_room(const Gemm& g, int64_t tile, int split, const GemmFacts& f) {
  if (split == 1) return true;
  const int64_t pair = g.rows > 64 ? 2 : 1, tiles = tiles_of(g.n, tile * pair) * pair;
  return f.waits && f.parts && g.rows <= 256 && tiles * split <= f.multiprocessors / pair * pair;
}

// A gate wants gate and up whole in one thread; where tiles of 192 rows fill the GPU once, k is not cut.
bool whole_gate(const Gemm& g, const GemmFacts& f) {
  const int64_t tiles = tiles_of(g.n, 192), all = f.multiprocessors;
  return g.gated && g.n * g.k >= kLargeWeight && tiles <= all / 2 * 2 && 8 * tiles >= 7 * all;
}

bool large_tile_gates(const Gemm& g) {
  return g.out_bf16 && g.bias == nullptr && g.n % 16 == 0 && g.k % 64 == 0 && g.out_row % 2 == 0 && at(g.out, 4);
}

bool clusters_wanted(const Gemm& g, const GemmFacts& f) {
  return !f.deterministic && !g.gated && !g.out_bf16 && g.n * g.k >= kLargeWeight && g.rows > 16 && g.rows <= 128;
}

// Tiles of 64 rows, where those of 128 would leave half of the GPU without one. As fast as cuBLASLt's, but they start
// under what is before them.
bool slim_fits(const Gemm& g, const GemmFacts& f) {
  if (!clusters_wanted(g, f) || g.rows <= kWgmmaRows) return false;
  const int64_t clusters = tiles_of(g.n, 4 * 64);
  return 4 * clusters * 10 >= int64_t{f.multiprocessors} * 7 && clusters <= f.clusters.large_tile_slim;
}

// Of a vocabulary clusters take one tile after the other, many of them.
bool cluster_fits(const Gemm& g, const GemmFacts& f) {
  constexpr int64_t kTurns = 8;
  if (!clusters_wanted(g, f)) return false;
  const int64_t clusters = tiles_of(g.n, 4 * 128);
  if (4 * clusters * 5 < int64_t{f.multiprocessors} * 4) return false;
  const int64_t most = g.rows <= 64 ? f.clusters.large_tile_64 : f.clusters.large_tile_128;
  return clusters <= most || clusters >= kTurns * most;
}

}  // namespace

int large_tile_split(const Gemm& g, const GemmFacts& f) { return whole_gate(g, f) ? 1 : wgmma_split(g.n, g.k); }

LargeTile large_tile(const Gemm& g, int split, const GemmFacts& f) {
  if (g.n * g.k < kLargeWeight || (!g.gated && g.out_bf16)) return LargeTile::kNone;
  if (slim_fits(g, f)) return LargeTile::kSlim;
  if (cluster_fits(g, f)) return LargeTile::kCluster;
  const int64_t low = large_tile_time(g, 128, split, f), tall = large_tile_time(g, 192, split, f);
  if (g.gated) return split > 1 || tall > low || !large_tile_gates(g) ? LargeTile::kNone : LargeTile::kGated;
  // Few rows: weights pass through smaller blocks, of which a multiprocessor has more, as fast.
  if (split == 1 && g.rows <= 32) return LargeTile::kNone;
  const bool low_room = large_tile_room(g, 128, split, f);
  const bool tall_room = large_tile_room(g, 192, split, f) && (split == 1 || g.rows > 64);
  if (tall_room && (tall <= low || !low_room)) return LargeTile::kTall;
  if (low_room) return LargeTile::kLow;
  return g.rows > 256 ? LargeTile::kSums : LargeTile::kNone;
}

// Others are ahead with few rows and many, and where k is not long, unless its parts in tiles of 128 rows fill the GPU.
bool large_tile_takes(const Gemm& g, const GemmFacts& f) {
  const int split = large_tile_split(g, f);
  const LargeTile tile = f.sm90_files ? large_tile(g, split, f) : LargeTile::kNone;
  if (tile == LargeTile::kNone) return false;
  if (g.gated) return g.rows > kWgmmaRows;
  if (tile == LargeTile::kSlim || tile == LargeTile::kCluster) return true;
  const bool full =
      tile == LargeTile::kLow && split > 1 && 8 * tiles_of(g.n, 128) * split >= 7 * int64_t{f.multiprocessors};
  const bool long_k = g.k >= 2 * g.n;
  if (g.rows > kLargeTileRows) return false;
  return g.rows > kWgmmaRows ? full || long_k : g.rows > 32 && full && long_k;
}

namespace {

// How much of the time of all blocks is used. `most`: clusters that run at once.
float gate_share(const Gemm& g, const GateShape& tile, int64_t most) {
  const int64_t rows = kGatePair * kGateTokens, columns = int64_t{tile.across} * tile.half;
  const int64_t waves = tiles_of(tiles_of(g.rows, rows) * tiles_of(g.n / 2, columns), most);
  return static_cast<float>(g.rows * (g.n / 2)) / static_cast<float>(waves * most * rows * columns);
}

}  // namespace

GateTiles gate_tiles(const Gemm& g, const GemmFacts& f) {
  constexpr float kLeast = 0.7f;  // where the last wave leaves more idle, others have smaller tiles
  constexpr float kGain = 1.1f;   // smaller tiles read more for what they multiply
  constexpr int64_t kLeastRows = 192;
  if (!f.hopper() || !f.sm90_files || f.deterministic || !g.gated || g.bias != nullptr || !g.out_bf16 || !mma_fits(g) ||
      g.n % 16 != 0 || g.rows < kLeastRows || !at(g.out, 16) || g.out_row % 8 != 0) {
    return GateTiles::kNone;
  }
  const float wide = gate_share(g, kGateWide, f.multiprocessors / kGatePair);
  const float narrow = gate_share(g, kGateNarrow, f.clusters.gate_narrow);
  const float small = gate_share(g, kGateSmall, f.clusters.gate_small);
  if (std::max({wide, narrow, small}) < kLeast) return GateTiles::kNone;
  if (small > kGain * std::max(wide, narrow)) return GateTiles::kSmall;
  return narrow > kGain * wide ? GateTiles::kNarrow : GateTiles::kWide;
}

bool library_halves_fit(const Gemm& g) {
  return 2 * static_cast<size_t>(g.rows * g.n) * sizeof(float) <= kLibraryWorkspace && g.k % 16 == 0 && g.n % 4 == 0;
}

}  // namespace tern::cuda
