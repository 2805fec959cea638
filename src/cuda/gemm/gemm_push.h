// Products on Hopper of up to 64 rows with a small weight whose k is cut (gemm_push_sm90.cu): the bits of gemm_hopper.
#pragma once

#include "cuda/gemm/gemm.h"

namespace tern::cuda {

bool push_fits(const Gemm& g, int split);
// Whether it is ahead of gemm_held and gemm_box, too, which have up to eight rows.
bool push_few(const Gemm& g);
Status gemm_push(const Gemm& g, const void* weight, int split, device::Stream stream);

}  // namespace tern::cuda
