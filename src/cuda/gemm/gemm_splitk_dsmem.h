// Products on Hopper of up to 64 rows with a small weight whose k is cut (gemm_splitk_dsmem_sm90.cu): the bits of
// gemm_wgmma.
#pragma once

#include "cuda/gemm/gemm.h"

namespace tern::cuda {

bool splitk_dsmem_fits(const Gemm& g, int split);
// Whether it is ahead of gemm_register_resident and gemm_smem_resident, too, which have up to eight rows.
bool splitk_dsmem_few(const Gemm& g);
Status gemm_splitk_dsmem(const Gemm& g, const void* weight, int split, device::Stream stream);

}  // namespace tern::cuda
