#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace tern::cuda {

// `bytes` of addresses of GPU `ordinal`, rounded up to its pages; no memory behind them yet. `allocations` counts what
// it takes and outlives it.
Expected<std::unique_ptr<device::AddressRange>> reserve_range(int ordinal, size_t bytes,
                                                              std::atomic<uint64_t>& allocations);

}  // namespace tern::cuda
