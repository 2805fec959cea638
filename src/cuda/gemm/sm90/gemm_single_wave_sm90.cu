// Products of few rows on Hopper in tiles of which every multiprocessor has the same number, with all of k: their
// blocks need not meet. Where some have a tile more than others these are waited for.
#include "cuda/gemm/sm90/gemm_wgmma_run.cuh"

namespace tern::cuda {
namespace {

// Tokens of a product up to which tiles are even. Of more, what all blocks read of the tokens counts beside the weight,
// and attention finds no room beside blocks that have a multiprocessor for themselves.
constexpr int64_t kGateTokens = 32, kPlainTokens = 16, kNormTokens = 8;

// Rows of the weight in a tile, where that makes a tile for each multiprocessor; else 0.
int single_wave_rows(const Gemm& g, device::Stream stream) {
  const int64_t all = state(stream).multiprocessors;
  for (const int rows : {112, 48, kSingleWaveWidth}) {
    const int64_t tiles = g.n / rows;
    if (g.n % rows == 0 && tiles <= all && 20 * tiles >= 19 * all) return rows;
  }
  return 0;
}

// Gates whose halves of k, in tiles of 128 rows, just fill three blocks per multiprocessor.
bool three_each(const Gemm& g, device::Stream stream) {
  const int64_t blocks = blocks_for(g.n, 64), all = state(stream).multiprocessors;
  return g.n % 64 == 0 && blocks > 2 * all && blocks <= 3 * all && 20 * blocks >= 57 * all;
}

// kDepth: stages of the ring. kBlocks: of a multiprocessor.
template <int kRows, int kTokens, int kDepth, int kBlocks>
Status run_single_wave(const Gemm& g, const void* weight, const KernelNames& names, device::Stream stream) {
  using Tile = WgmmaTile<kTokens, kTokens, kDepth, kBlocks, kRows>;
  return launch_hopper<Tile>(g, weight, HopperGrid(g, 1), names, stream);
}

constexpr KernelNames kNames8{"gemm_single_wave_8", "gemm_single_wave_8_normed"},
    kNames16{"gemm_single_wave_16", "gemm_single_wave_16_normed"},
    kNames32{"gemm_single_wave_32", "gemm_single_wave_32_normed"};

Status run_gate(const Gemm& g, const void* weight, device::Stream stream) {
  if (g.rows <= 8) return run_single_wave<64, 8, 8, 3>(g, weight, kNames8, stream);
  if (g.rows <= 16) return run_single_wave<64, 16, 7, 3>(g, weight, kNames16, stream);
  return run_single_wave<64, 32, 6, 3>(g, weight, kNames32, stream);
}

}  // namespace

bool single_wave_fits(const Gemm& g, device::Stream stream) {
  if (state(stream).deterministic || g.n * g.k < kLargeWeight || streamk_fits(g, stream)) return false;
  if (g.gated) return g.rows <= kGateTokens && three_each(g, stream);
  const int rows = g.rows <= kPlainTokens ? single_wave_rows(g, stream) : 0;
  if (rows == kSingleWaveWidth) return g.rows <= kNormTokens;
  return rows > 0 && g.after.residual == nullptr;
}

int single_wave_norm_width(const Gemm& g, device::Stream stream) {
  return !g.gated && single_wave_fits(g, stream) && single_wave_rows(g, stream) == kSingleWaveWidth ? kSingleWaveWidth
                                                                                                    : 0;
}

Status gemm_single_wave(const Gemm& g, const void* weight, device::Stream stream) {
  if (g.gated) return run_gate(g, weight, stream);
  const int rows = single_wave_rows(g, stream);
  const bool few = g.rows <= 8;
  if (rows == kSingleWaveWidth) return run_single_wave<kSingleWaveWidth, 8, 32, 1>(g, weight, kNames8, stream);
  if (rows == 48) {
    return few ? run_single_wave<48, 8, 28, 1>(g, weight, kNames8, stream)
               : run_single_wave<48, 16, 24, 1>(g, weight, kNames16, stream);
  }
  return few ? run_single_wave<112, 8, 14, 1>(g, weight, kNames8, stream)
             : run_single_wave<112, 16, 13, 1>(g, weight, kNames16, stream);
}

}  // namespace tern::cuda
