// Products x * w^T of our own: what every path has when cuBLASLt is not there, and what deterministic mode uses.
#pragma once

#include <cstdint>

#include "cuda/gemm/choice.h"
#include "cuda/gemm/choice_grouped.h"
#include "cuda/gemm/fits.h"
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
Status gemm_mixed(const Gemm& g, const void* weight, device::Stream stream);           // bf16 x float32, few columns

// The rest is what choose_gemm() (choice.h) names; fits.h says what each of them can take. Few rows, sums of their own;
// the parts of gemm_streamk are left in the stream's own memory.
Status gemm_register_resident(const Gemm& g, const void* weight, device::Stream stream);
Status gemm_smem_resident(const Gemm& g, const void* weight, device::Stream stream);
Status gemm_single_wave(const Gemm& g, const void* weight, device::Stream stream);
Status gemm_streamk(const Gemm& g, const void* weight, device::Stream stream);
// Bytes of StreamState::parts: two parts of a tile per block.
inline size_t streamk_bytes(int multiprocessors) {
  return size_t{2} * static_cast<size_t>(multiprocessors) * kStreamKRows * 128 * sizeof(float);
}
// k in `split` parts.
Status gemm_wgmma(const Gemm& g, const void* weight, int split, device::Stream stream);
Status gemm_splitk_dsmem(const Gemm& g, const void* weight, int split, device::Stream stream);
// Large weights (sm90/gemm_large_tile.cuh), by GemmKernel.
Status gemm_large_tile_128(const Gemm& g, const void* weight, int split, device::Stream stream);
Status gemm_large_tile_192(const Gemm& g, const void* weight, int split, device::Stream stream);
Status gemm_large_tile_sums(const Gemm& g, const void* weight, int split, device::Stream stream);
Status gemm_large_tile_gated(const Gemm& g, const void* weight, device::Stream stream);
Status gemm_large_tile_slim(const Gemm& g, const void* weight, device::Stream stream);
Status gemm_large_tile_cluster(const Gemm& g, const void* weight, device::Stream stream);
// Bytes of StreamState::parts where blocks may wait for each other: a part of the largest tile per block.
inline size_t parts_bytes(int multiprocessors) {
  return static_cast<size_t>(multiprocessors) * 256 * 192 * sizeof(float);
}
Status gemm_gate(const Gemm& g, const void* weight, GemmKernel kernel, device::Stream stream);
// Any of these but cuBLASLt (run.cc).
Status run_gemm(const GemmChoice& choice, const Gemm& g, const void* weight, device::Stream stream);

// What last_kernel says, without and with a norm before the product.
struct KernelNames {
  const char *plain, *normed;
  const char* of(const Gemm& g) const { return g.before.squares == nullptr ? plain : normed; }
};
// Any product with one weight, by the kernel that is best for it (linear.cc).
Status product(const Gemm& g, const void* weight, device::Stream stream);
// Likewise with one weight per expert or per head.
Status grouped_product(const Gemm& g, const void* const* weights, device::Stream stream);

// What choose_grouped() (choice_grouped.h) names on Hopper (grouped/): gemm_grouped_tiles() has tiles of 32 and of 128
// tokens, gemm_grouped_wide() those of 256 rows of the weight, gemm_grouped_gather() the same of Gemm::from.
Status gemm_grouped_few(const Gemm& g, const void* const* weights, device::Stream stream);
Status gemm_grouped_tiles(const GroupedChoice& choice, const Gemm& g, const void* const* weights,
                          device::Stream stream);
Status gemm_grouped_wide(GroupedKernel kernel, const Gemm& g, const void* const* weights, device::Stream stream);
Status gemm_grouped_gather(GroupedKernel kernel, const Gemm& g, const void* const* weights, device::Stream stream);
// Any of these (run.cc).
Status run_grouped(const GroupedChoice& choice, const Gemm& g, const void* const* weights, device::Stream stream);
// For grouped_sum_fits(); g.rows: tokens.
Status gemm_grouped_sum(const Gemm& g, const ExpertPicks& picks, const void* const* weights, device::Stream stream);

// Whether rows of x stay where they are and `token_of` says where: of many pairs, where products of so many experts can
// read them there. True for some of the experts where it is true for all; moe_permute() fills in token_of anyway.
bool rows_stay(const TensorView& x, const TensorView& token_of, int64_t experts, device::Stream stream);

// One file per tile, because they compile for long.
Status launch_mma_16(const Gemm& g, const void* const* weights, device::Stream stream);
Status launch_mma_64(const Gemm& g, const void* const* weights, device::Stream stream);
Status launch_mma_128(const Gemm& g, const void* const* weights, device::Stream stream);

}  // namespace tern::cuda
