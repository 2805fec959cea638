// What the kernels of moe_permute and moe_dispatch share.
#pragma once

#include "ops/moe.h"

namespace tern::cuda {

Status check_permute(const ops::MoePermuteParams& p);

// Whether the router is a float32 weight without a bias, from bfloat16 tokens to the scores of a choice that a warp can
// make (route_fits_lanes()): what kernels that multiply and choose take.
bool router_is_plain(const ops::MoeDispatchParams& p);

// All of moe_dispatch() with a router in one, of very few tokens (moe_dispatch_norm.cu).
bool dispatch_fits_router(const ops::MoeDispatchParams& p, device::Stream stream);
Status moe_dispatch_router(const ops::MoeDispatchParams& p, device::Stream stream);

}  // namespace tern::cuda
