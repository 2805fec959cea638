// Gated activation: out = silu(gate) * up.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::ops {

// silu(gate) is rounded to the activation type before the product (models-other.md section 0).
struct SiluMulParams {
  TensorView gate_up;  // [T, 2 * I]: gate then up
  TensorView out;      // [T, I]
};
Status silu_mul(const SiluMulParams& params, device::Stream stream);

}  // namespace tern::ops
