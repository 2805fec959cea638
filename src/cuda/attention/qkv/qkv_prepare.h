// The pass between the QKV product and attention, as a kernel of its own.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "ops/rope.h"

namespace tern::cuda {

// Of parameters that qkv_prepare() has checked (rope.cu).
Status launch_prepare(const ops::QkvPrepareParams& p, device::Stream stream);

}  // namespace tern::cuda
