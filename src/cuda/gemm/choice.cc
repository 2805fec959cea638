#include "cuda/gemm/choice.h"

#include "cuda/gemm/blaslt.h"
#include "cuda/gemm/may_fuse.h"
#include "cuda/runtime/deferred.h"

namespace tern::cuda {
namespace {

// cuBLASLt adds a bias of the results' type.
bool library_has_bias(const Gemm& g) { return g.bias == nullptr || !g.out_bf16 || g.short_bias != nullptr; }

// Rows at multiples of 8 bytes only (patches of a picture): own kernels for these are for few of them.
bool library_unaligned(const Gemm& g, device::Stream stream) {
  const StreamState& s = state(stream);
  return s.blas != nullptr && !s.deterministic && g.x_bf16 && g.w_bf16 && g.rows > kWgmmaRows && g.k % 4 == 0 &&
         g.x_row % 4 == 0 && reinterpret_cast<uintptr_t>(g.x) % 8 == 0 && library_has_bias(g);
}

// Whether a product that may be deferred goes to a kernel of few rows that may have a norm beside it.
bool beside_norm(const Gemm& g, device::Stream stream) {
  return may_fuse(g) && defers_few_rows(stream) && has_hopper_kernels(stream) && mma_fits(g) && g.rows > 0 &&
         g.rows <= kNormFusedRows && !g.gelu && !large_tile_first(g, stream);
}

// Of Hopper's own kernels.
GemmKernel choose_hopper(const Gemm& g, device::Stream stream) {
  if (state(stream).deterministic || large_tile_first(g, stream)) return GemmKernel::kLargeTile;
  if (single_wave_fits(g, stream)) return GemmKernel::kSingleWave;
  if (register_resident_fits(g)) return GemmKernel::kRegisterResident;
  if (streamk_fits(g, stream)) return GemmKernel::kStreamK;
  return GemmKernel::kWgmma;
}

}  // namespace

// Deterministic mode keeps to kernels whose sums do not depend on how many rows there are.
GemmKernel choose_gemm(const Gemm& g, device::Stream stream, bool library) {
  if (mixed_fits(g)) return GemmKernel::kMixed;
  const bool mma = mma_fits(g), hopper = has_hopper_kernels(stream);
  if (!state(stream).deterministic && !(mma && hopper) && gemv_fits(g)) return GemmKernel::kGemv;
  if (!mma) return library && library_unaligned(g, stream) ? GemmKernel::kLibraryUnaligned : GemmKernel::kSimple;
  if (library && library_first(g, stream)) return GemmKernel::kLibrary;
  return hopper ? choose_hopper(g, stream) : GemmKernel::kMma;
}

bool has_hopper_kernels(device::Stream stream) {
  const StreamState& s = state(stream);
  return s.arch >= 90 && s.arch < 100 && s.smem_limit >= 200 * 1024;
}

// Whether the kernels of deterministic mode are the fastest outside of it, too: too many rows for the others, and a
// gate, or k in parts, that cuBLASLt needs a kernel of its own for.
bool large_tile_first(const Gemm& g, device::Stream stream) {
  return has_hopper_kernels(stream) && mma_fits(g) && state(stream).parts != nullptr && large_tile_takes(g, stream);
}

// Whether a product goes to cuBLASLt: many rows, where its tiles are best.
bool library_first(const Gemm& g, device::Stream stream) {
  const StreamState& s = state(stream);
  if (s.blas == nullptr || s.deterministic || !library_has_bias(g) || g.k % 8 != 0 || large_tile_first(g, stream))
    return false;
  return !has_hopper_kernels(stream) || g.rows > kWgmmaRows;
}

// Whether it can do the first part of a norm behind it.
bool before_norm(const Gemm& g, device::Stream stream) {
  if (!beside_norm(g, stream) || g.gated || g.bias != nullptr || g.out_bf16) return false;
  const int width = norm_width(g, stream);
  return width > 0 && g.n % (4 * width) == 0 && g.n / width <= kNormFusedParts;
}

// Whether it can do the second part of a norm before it.
bool behind_norm(const Gemm& g, device::Stream stream) { return beside_norm(g, stream) && norm_scaled(g, stream); }

int norm_width(const Gemm& g, device::Stream stream) {
  if (const int width = single_wave_norm_width(g, stream); width > 0) return width;
  if (register_resident_fits(g)) return register_resident_normed(g, stream) ? 16 : 0;
  return streamk_fits(g, stream) ? 16 : wgmma_norm_width(g);
}

bool norm_scaled(const Gemm& g, device::Stream stream) {
  if (single_wave_fits(g, stream)) return true;
  if (register_resident_fits(g)) return register_resident_scaled(g, stream);
  return !streamk_fits(g, stream);
}

// The norm then reads what it would have written.
bool onto_pays(const Gemm& g, device::Stream stream) {
  constexpr int64_t kLeastRows = 129;
  static_assert(kLeastRows > kNormFusedRows);  // launch_deferred() tells these by the rows
  return may_fuse(g) && mma_fits(g) && g.rows >= kLeastRows && !g.gated && !g.gelu && g.bias == nullptr &&
         !g.out_bf16 && library_first(g, stream);
}

namespace {

// Whether a norm behind the product can add parts of it up.
bool norm_adds(const Gemm& g) {
  constexpr int64_t kLeastWidth = 1024, kMostWidth = 16384;  // of a norm
  return g.n >= kLeastWidth && g.n <= kMostWidth && g.n % 8 == 0;
}

}  // namespace

int parts_pay(const Gemm& g, device::Stream stream) {
  const bool fits = may_fuse(g) && g.rows > kNormFusedRows && g.rows <= kLargeTileRows && !g.gated && !g.gelu &&
                    g.bias == nullptr && !g.out_bf16 && norm_adds(g);
  return fits && !state(stream).deterministic && large_tile_first(g, stream) ? parts_of(g, stream) : 1;
}

// Where tiles of 128 rows and 128 tokens leave half of the GPU idle. Whole, the library takes smaller ones, or cuts k
// itself and adds up in a kernel of its own.
bool halves_pay(const Gemm& g, device::Stream stream) {
  constexpr int64_t kTile = 128;
  return norm_adds(g) && BlasLt::halves_fit(g) &&
         2 * blocks_for(g.rows, kTile) * blocks_for(g.n, kTile) <= state(stream).multiprocessors;
}

}  // namespace tern::cuda
