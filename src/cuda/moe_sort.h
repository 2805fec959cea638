// What the kernels of moe_permute and moe_dispatch share.
#pragma once

#include "ops/moe.h"

namespace tern::cuda {

Status check_permute(const ops::MoePermuteParams& p);

// Whether rows of x stay where they are and `token_of` says where: of many pairs, where products of so many experts can
// read them there. True for some of the experts where it is true for all; moe_permute() fills in token_of anyway.
bool rows_stay(const TensorView& x, const TensorView& token_of, int64_t experts, device::Stream stream);

}  // namespace tern::cuda
