// Products x * w^T of our own: what every path has when cuBLASLt is not there, and what deterministic mode uses.
#pragma once

#include <cstdint>

#include "cuda/gemm/gemm_args.h"
#include "cuda/runtime/context.h"
#include "device/tensor.h"

namespace tern::cuda {

inline constexpr int kMaxExperts = 2048;  // of one grouped product

// Weights of a product: one, one per expert or one per head. Rides in the kernel's parameters, so that a graph keeps it
// and nothing is copied.
template <int kCount>
struct WeightTable {
  const void* w[kCount];
};

// `weights`: host array of `groups` device pointers.
Status gemm_mma(const Gemm& g, const void* const* weights, device::Stream stream);     // bf16 x bf16, tensor cores
Status gemm_simple(const Gemm& g, const void* const* weights, device::Stream stream);  // any types, float32 products
Status gemv(const Gemm& g, const void* weight, device::Stream stream);                 // up to kGemvRows rows
inline constexpr int64_t kGemvRows = 4;
Status gemm_mixed(const Gemm& g, const void* weight, device::Stream stream);  // bf16 x float32, few columns
bool mixed_fits(const Gemm& g);
// Whether gemm_mma can read these rows (16-byte aligned).
bool mma_fits(const Gemm& g);
bool gemv_fits(const Gemm& g);

// Few rows, with sums of their own: not for deterministic mode. Up to kRegisterResidentRows rows and a small weight
// (gemm_register_resident.cu); up to kStreamKRows rows and a large weight with many values of k (gemm_streamk_sm90.cu),
// whose parts are left in the stream's own memory.
bool register_resident_fits(const Gemm& g);
Status gemm_register_resident(const Gemm& g, const void* weight, device::Stream stream);
// The same on Hopper where the whole weight finds room on the GPU at once (gemm_smem_resident_sm90.cu);
// gemm_register_resident() knows.
bool smem_resident_fits(const Gemm& g, device::Stream stream);
Status gemm_smem_resident(const Gemm& g, const void* weight, device::Stream stream);
bool streamk_fits(const Gemm& g, device::Stream stream);
Status gemm_streamk(const Gemm& g, const void* weight, device::Stream stream);
inline constexpr int64_t kRegisterResidentRows = 8, kStreamKRows = 64, kTickets = 4096;
inline constexpr int64_t kLargeWeight = int64_t{16} << 20;  // values
bool register_resident_normed(const Gemm& g,
                              device::Stream stream);  // whether gemm_register_resident can do the first part of a norm
bool register_resident_scaled(const Gemm& g, device::Stream stream);  // and the second one (norm_fusion.h)
// Bytes of StreamState::parts: two parts of a tile per block.
inline size_t streamk_bytes(int multiprocessors) {
  return size_t{2} * static_cast<size_t>(multiprocessors) * kStreamKRows * 128 * sizeof(float);
}

// Many rows and their gate in one (gemm_gate_sm90.cu), where that fills the GPU; not in deterministic mode, where their
// bits would not be those of few rows.
inline constexpr int64_t kGateRows = 192;
bool gate_fits(const Gemm& g, device::Stream stream);
Status gemm_gate(const Gemm& g, const void* weight, device::Stream stream);

// Of a product with a norm behind it (norm_fusion.h): columns of which its kernel leaves a sum of squares; 0: it
// cannot. With a norm before it: whether its kernel scales its sums.
int norm_width(const Gemm& g, device::Stream stream);
bool norm_scaled(const Gemm& g, device::Stream stream);
// What last_kernel says, without and with a norm before the product.
struct KernelNames {
  const char *plain, *normed;
  const char* of(const Gemm& g) const { return g.before.squares == nullptr ? plain : normed; }
};
// Whether a product of cuBLASLt's adds to the residual by itself if a norm behind it reads that (linear.cc).
bool onto_pays(const Gemm& g, device::Stream stream);
// Whether one of these is better in two halves of k, which the norm adds up.
bool halves_pay(const Gemm& g, device::Stream stream);
// Likewise, of up to 128 rows: how many parts one of our own is left in; 1: it is not.
int parts_pay(const Gemm& g, device::Stream stream);
// Any product with one weight, by the kernel that is best for it (linear.cc).
Status product(const Gemm& g, const void* weight, device::Stream stream);
// Likewise with one weight per expert.
Status grouped_product(const Gemm& g, const void* const* weights, device::Stream stream);
// The products of few rows of experts, weighed and added up, with the first part of a norm behind them (norm_fusion.h):
// not for deterministic mode. g.rows: of all experts, for the latter tokens.
bool grouped_sum_fits(const Gemm& g, device::Stream stream);
Status gemm_grouped_sum(const Gemm& g, const ExpertPicks& picks, const void* const* weights, device::Stream stream);

// Hopper (gemm_wgmma_sm90.cu, gemm_grouped_sm90.cu): in deterministic mode sums do not depend on how many rows there
// are. Need mma_fits().
Status gemm_wgmma(const Gemm& g, const void* weight, device::Stream stream);
Status gemm_wgmma(const Gemm& g, const void* weight, int split, device::Stream stream);
Status gemm_wgmma_grouped(const Gemm& g, const void* const* weights, device::Stream stream);
inline constexpr int64_t kWgmmaRows = 64;    // from here on cuBLASLt is ahead, when it is there
inline constexpr int64_t kNarrowRows = 512;  // from here on what products leave is worth its bytes: bfloat16
// Into how many parts k is cut: 1, 2, 4 or 8.
int wgmma_split(int64_t n, int64_t k);
int wgmma_norm_width(const Gemm& g);  // norm_width() of gemm_wgmma with few rows
bool wgmma_grouped_fits(const Gemm& g, const void* const* weights);
// Whether gemm_wgmma_grouped() can read rows by Gemm::from.
bool grouped_gathers(const Gemm& g, const void* const* weights, device::Stream stream);

// Whether rows of x stay where they are and `token_of` says where: of many pairs, where products of so many experts can
// read them there. True for some of the experts where it is true for all; moe_permute() fills in token_of anyway.
bool rows_stay(const TensorView& x, const TensorView& token_of, int64_t experts, device::Stream stream);

// Few rows and a large weight whose tiles are shared out evenly (gemm_single_wave_sm90.cu): not for deterministic mode.
// Needs mma_fits().
bool single_wave_fits(const Gemm& g, device::Stream stream);
Status gemm_single_wave(const Gemm& g, const void* weight, device::Stream stream);
inline constexpr int kSingleWaveWidth = 32;                        // norm_width() where a norm may follow
int single_wave_norm_width(const Gemm& g, device::Stream stream);  // that, or 0

// In deterministic mode: kernels for large weights (gemm_large_tile.cuh), or gemm_wgmma, which has the same sums.
Status gemm_large_tile(const Gemm& g, const void* weight, device::Stream stream);
// Whether one of the former does, and is ahead outside that mode: of up to so many rows, with a gate of any number.
bool large_tile_takes(const Gemm& g, device::Stream stream);
inline constexpr int64_t kLargeTileRows = 128;
// How many parts of k it leaves of a product without a bias where Gemm::apart says so; 1: it cannot.
int parts_of(const Gemm& g, device::Stream stream);
// Bytes of StreamState::parts where blocks may wait for each other: a part of the largest tile per block.
inline size_t parts_bytes(int multiprocessors) {
  return static_cast<size_t>(multiprocessors) * 256 * 192 * sizeof(float);
}

// One file per tile, because they compile for long.
Status launch_mma_16(const Gemm& g, const void* const* weights, device::Stream stream);
Status launch_mma_64(const Gemm& g, const void* const* weights, device::Stream stream);
Status launch_mma_128(const Gemm& g, const void* const* weights, device::Stream stream);

}  // namespace tern::cuda
