#pragma once

#include <span>

#include "base/error.h"
#include "device/device.h"

namespace tern::cuda {

// See Device::copy_many and Device::inject.
Status copy_many(std::span<const device::CopySpan> pieces, device::Stream stream);
Status inject(device::Fault fault, device::Stream stream);

}  // namespace tern::cuda
