#pragma once

#include <memory>

#include "device/device_cuda.h"

namespace tern::cuda {

// GPUs that the driver shows. The error is one line that says what to do.
Expected<int> device_count();
Expected<std::unique_ptr<device::Device>> make_device(const device::CudaOptions& options);

}  // namespace tern::cuda
