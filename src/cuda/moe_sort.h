// What the kernels of moe_permute and moe_dispatch share.
#pragma once

#include "ops/moe.h"

namespace tern::cuda {

Status check_permute(const ops::MoePermuteParams& p);

inline constexpr int64_t kMovedPairs = 2048;  // up to which the sort moves rows itself

// Whether rows of x stay where they are and `token_of` says where: of many pairs, where products of experts can read
// them there.
bool rows_stay(const TensorView& x, const TensorView& token_of, device::Stream stream);

}  // namespace tern::cuda
