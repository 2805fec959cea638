// Gated activation: out = silu(gate) * up.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::ops {

// silu(gate) is rounded to gate_up's type before the product (models-other.md section 0): with gate_up in float32 and
// out in bfloat16 there is one rounding, at the end.
struct SiluMulParams {
  TensorView gate_up;  // [T, 2 * I]: gate then up
  TensorView out;      // [T, I]
  // Empty: all rows. Else [n] int32: only rows [range[0], range[n - 1]) are computed (those of some experts, from their
  // offsets).
  TensorView range;
};
Status silu_mul(const SiluMulParams& params, device::Stream stream);

}  // namespace tern::ops
