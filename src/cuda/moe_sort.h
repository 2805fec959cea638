// What the kernels of moe_permute and moe_dispatch share.
#pragma once

#include "ops/moe.h"

namespace tern::cuda {

Status check_permute(const ops::MoePermuteParams& p);

}  // namespace tern::cuda
