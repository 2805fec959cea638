// Products with one weight per expert on Hopper, by how many rows there are. Not for others than gemm_grouped_sm90.cu.
#pragma once

#include "cuda/gemm/gemm.h"

namespace tern::cuda {

// A token's experts, sums of their own: not for deterministic mode.
bool grouped_few_fits(const Gemm& g, device::Stream stream);
Status gemm_grouped_few(const Gemm& g, const void* const* weights, device::Stream stream);

// Many rows per expert, one chain per value.
bool grouped_wide_fits(const Gemm& g, device::Stream stream);
Status gemm_grouped_wide(const Gemm& g, const void* const* weights, device::Stream stream);
Status gemm_grouped_gather(const Gemm& g, const void* const* weights, device::Stream stream);  // of g.from
inline constexpr int64_t kFewPerGroup = 8;  // rows up to which, on average, others are ahead

}  // namespace tern::cuda
