// Events that keep their time, and ranges for profilers.
#pragma once

#include <memory>

#include "device/device.h"

namespace tern::cuda {

Expected<std::unique_ptr<device::Event>> make_timed_event();
// NVTX; its functions are empty until a tool attaches.
void range_push(const char* name);
void range_pop();

}  // namespace tern::cuda
