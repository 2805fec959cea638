#include "cuda/gemm/choice.h"

#include "base/checked.h"
#include "cuda/gemm/code_format.h"
#include "cuda/gemm/fits.h"
#include "cuda/gemm/may_fuse.h"

namespace tern::cuda {
namespace {

// cuBLASLt adds a bias of the results' type.
bool library_has_bias(const Gemm& g) { return g.bias == nullptr || !g.out_bf16 || g.short_bias != nullptr; }

// Rows at multiples of 8 bytes only (patches of a picture): own kernels for these are for few of them.
bool library_unaligned(const Gemm& g, const GemmFacts& f) {
  return f.library && !f.deterministic && g.x_bf16 && g.w_bf16 && g.rows > kWgmmaRows && g.k % 4 == 0 &&
         g.x_row % 4 == 0 && reinterpret_cast<uintptr_t>(g.x) % 8 == 0 && library_has_bias(g);
}

// Whether the kernels of deterministic mode are the fastest outside of it, too: too many rows for the others, and a
// gate, or k in parts, that cuBLASLt needs a kernel of its own for.
bool large_tile_first(const Gemm& g, const GemmFacts& f) {
  return f.hopper() && mma_fits(g) && f.parts && large_tile_takes(g, f);
}

// Whether a product that may be deferred goes to a kernel of few rows that may have a norm beside it.
bool beside_norm(Fusion fusion, const Gemm& g, const GemmFacts& f) {
  return may_fuse(fusion, g) && f.hopper() && mma_fits(g) && g.rows > 0 && g.rows <= kNormFusedRows && !g.gelu &&
         !large_tile_first(g, f);
}

// Both have the same sums.
GemmChoice choose_wgmma(const Gemm& g, int split) {
  return {splitk_dsmem_fits(g, split) ? GemmKernel::kSplitKDsmem : GemmKernel::kWgmma, split};
}

GemmChoice choose_large_tile(const Gemm& g, const GemmFacts& f) {
  const int split = large_tile_split(g, f);
  switch (large_tile(g, split, f)) {
    case LargeTile::kGated:
      return {GemmKernel::kLargeTileGated};
    case LargeTile::kSlim:
      return {GemmKernel::kLargeTileSlim};
    case LargeTile::kCluster:
      return {GemmKernel::kLargeTileCluster};
    case LargeTile::kTall:
      return {GemmKernel::kLargeTile192, split};
    case LargeTile::kLow:
      return {GemmKernel::kLargeTile128, split};
    case LargeTile::kSums:
      return {GemmKernel::kLargeTileSums, split};
    case LargeTile::kNone:
      break;
  }
  return choose_wgmma(g, split);
}

// Of Hopper's own kernels.
GemmChoice choose_hopper(const Gemm& g, const GemmFacts& f) {
  if (f.deterministic || large_tile_first(g, f)) return choose_large_tile(g, f);
  if (single_wave_fits(g, f)) return {GemmKernel::kSingleWave};
  if (register_resident_fits(g, f))
    return {smem_resident_fits(g, f) ? GemmKernel::kSmemResident : GemmKernel::kRegisterResident};
  if (streamk_fits(g, f)) return {GemmKernel::kStreamK};
  return choose_wgmma(g, wgmma_split(g, f));
}

}  // namespace

GemmChoice choose_gemm(const Gemm& g, const GemmFacts& f, bool library) {
  if (mixed_fits(g)) return {GemmKernel::kMixed};
  const bool mma = mma_fits(g), hopper = f.hopper();
  if (!f.deterministic && !(mma && hopper) && gemv_fits(g)) return {GemmKernel::kGemv};
  if (!mma) return {library && library_unaligned(g, f) ? GemmKernel::kLibraryUnaligned : GemmKernel::kSimple};
  if (library && library_first(g, f)) return {GemmKernel::kLibrary};
  return hopper ? choose_hopper(g, f) : GemmChoice{GemmKernel::kMma};
}

GemmChoice choose_gated(const Gemm& g, bool whole_f32, const GemmFacts& f) {
  if (large_tile_first(g, f)) return choose_large_tile(g, f);
  switch (gate_tiles(g, f)) {
    case GateTiles::kWide:
      return {GemmKernel::kGateWide};
    case GateTiles::kNarrow:
      return {GemmKernel::kGateNarrow};
    case GateTiles::kSmall:
      return {GemmKernel::kGateSmall};
    case GateTiles::kNone:
      break;
  }
  if (!f.hopper() || !mma_fits(g) || !whole_f32 || library_first(g, f)) return {GemmKernel::kApart};
  return choose_gemm(g, f, false);
}

bool library_first(const Gemm& g, const GemmFacts& f) {
  if (!f.library || f.deterministic || !library_has_bias(g) || g.k % 8 != 0 || large_tile_first(g, f)) return false;
  return !f.hopper() || g.rows > kWgmmaRows;
}

int norm_width(const Gemm& g, const GemmFacts& f) {
  if (g.codes.n > 0) return codes_norm_width(g, f);
  if (single_wave_fits(g, f) && !g.gated && single_wave_rows(g, f.multiprocessors) == kSingleWaveWidth)
    return kSingleWaveWidth;
  if (register_resident_fits(g, f)) return register_resident_normed(g, f) ? 16 : 0;
  if (streamk_fits(g, f)) return 16;
  if (!f.sm90_files) return 0;
  return splitk_dsmem_fits(g, wgmma_split(g.n, g.k)) ? 16 : 128;
}

bool before_norm(const Gemm& g, const GemmFacts& f) {
  if (!beside_norm(Fusion::kNormAfter, g, f) || g.gated || g.bias != nullptr || g.out_bf16) return false;
  const int width = norm_width(g, f);
  return width > 0 && g.n % (4 * width) == 0 && g.n / width <= kNormFusedParts;
}

bool behind_norm(const Gemm& g, const GemmFacts& f) {
  if (!beside_norm(Fusion::kNormBefore, g, f)) return false;
  if (single_wave_fits(g, f)) return true;
  if (register_resident_fits(g, f)) return register_resident_scaled(g, f);
  return !streamk_fits(g, f);
}

// The norm then reads what it would have written.
bool onto_pays(const Gemm& g, const GemmFacts& f) {
  constexpr int64_t kLeastRows = 129;
  static_assert(kLeastRows > kNormFusedRows);  // launch_deferred() tells these by the rows
  return may_fuse(Fusion::kResidualAdd, g) && mma_fits(g) && g.rows >= kLeastRows && !g.gated && !g.gelu &&
         g.bias == nullptr && !g.out_bf16 && library_first(g, f);
}

namespace {

// Whether a norm behind the product can add parts of it up.
bool norm_adds(const Gemm& g) {
  constexpr int64_t kLeastWidth = 1024, kMostWidth = 16384;  // of a norm
  return g.n >= kLeastWidth && g.n <= kMostWidth && g.n % 8 == 0;
}

}  // namespace

int parts_pay(const Gemm& g, const GemmFacts& f) {
  const bool fits = may_fuse(Fusion::kPartsIntoNorm, g) && g.rows > kNormFusedRows && g.rows <= kLargeTileRows &&
                    !g.gated && !g.gelu && g.bias == nullptr && !g.out_bf16 && norm_adds(g);
  if (!fits || f.deterministic || !large_tile_first(g, f)) return 1;
  const GemmChoice choice = choose_large_tile(g, f);
  return choice.kernel == GemmKernel::kLargeTile128 || choice.kernel == GemmKernel::kLargeTile192 ? choice.split : 1;
}

// Where tiles of 128 rows and 128 tokens leave half of the GPU idle. Whole, the library takes smaller ones, or cuts k
// itself and adds up in a kernel of its own.
bool halves_pay(const Gemm& g, const GemmFacts& f) {
  constexpr int64_t kTile = 128;
  return norm_adds(g) && library_halves_fit(g) &&
         2 * ceil_div(g.rows, kTile) * ceil_div(g.n, kTile) <= f.multiprocessors;
}

}  // namespace tern::cuda
