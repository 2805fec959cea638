// Products of few rows on Hopper in tiles of which every multiprocessor has the same number, with all of k: their
// blocks need not meet. Where some have a tile more than others these are waited for.
#include "cuda/gemm/sm90/gemm_wgmma_run.cuh"

namespace tern::cuda {
namespace {

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

Status gemm_single_wave(const Gemm& g, const void* weight, device::Stream stream) {
  if (g.gated) return run_gate(g, weight, stream);
  const int rows = single_wave_rows(g, state(stream).multiprocessors);
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
