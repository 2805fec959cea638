#pragma once

#include <memory>
#include <span>

#include "device/communicator.h"
#include "device/device.h"

namespace tern::cuda {

// See CudaLibrary::make_communicators.
Expected<std::unique_ptr<device::CommunicatorGroup>> make_communicators(std::span<device::Device* const> devices);

}  // namespace tern::cuda
