#pragma once

#include <array>
#include <span>

#include "base/error.h"
#include "device/device.h"

namespace tern::cuda {

// See Device::copy_many, Device::copy_in_turn and Device::inject.
Status copy_many(std::span<const device::CopySpan> pieces, device::Stream stream);
Status copy_in_turn(const std::array<std::span<const device::CopySpan>, 2>& sets, const device::HostTurn& turn,
                    device::Stream stream);
Status inject(device::Fault fault, device::Stream stream);

}  // namespace tern::cuda
