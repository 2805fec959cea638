// Norms of sums that a product left in parts.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "ops/norm.h"

namespace tern::cuda {

// The norm of the sum of x[0] to x[parts - 1], each [rows, p.x.dim[1]] float32 without gaps, in place of p.x; 2, 4 or 8
// parts (norm.cu).
Status rms_norm_parts(const ops::RmsNormParams& p, const float* x, int parts, device::Stream stream);

}  // namespace tern::cuda
