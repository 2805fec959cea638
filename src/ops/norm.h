// RMS norm, with the residual sum fused in front of it.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::ops {

// v = x (+ residual; the sum is rounded to x's type and written back), y = v * rsqrt(mean(v^2) + eps) rounded to x's
// type, times weight, rounded to out's type (models-other.md section 0). Statistics in float32. With x in float32 and
// out in bfloat16 there is one rounding, at the end.
struct RmsNormParams {
  TensorView x;         // [T, H] or [T, heads, D] (last dimension is normalised; rows may be strided)
  TensorView residual;  // empty, or [T, H] of x's type: in: r, out: r + x
  TensorView weight;    // [H] bf16 or f32
  TensorView out;       // shaped like x; may be x itself when the types agree
  float eps = 1e-6f;
  // The next op is a product that reads `out`, and no other op does: under deferral (deferral.h) its rows may be left
  // without their scale, and x, where a product put it, need not be there.
  bool once = false;
};
Status rms_norm(const RmsNormParams& params, device::Stream stream);

}  // namespace tern::ops
