#pragma once

#include <memory>

#include "device/device.h"

namespace tern::cuda {

// `bytes` of addresses of GPU `ordinal`, rounded up to its pages; no memory behind them yet.
Expected<std::unique_ptr<device::AddressRange>> reserve_range(int ordinal, size_t bytes);

}  // namespace tern::cuda
