// What this GPU can do at most: measured beside every benchmark, so that its ratio means something.
#pragma once

#include "cuda/runtime/context.h"
#include "device/device_cuda.h"

namespace tern::cuda {

Expected<device::Measured> measure(const device::MeasureRequest& request, device::Stream stream);

// One read-only pass over `bytes` (a multiple of 16 KiB), by bulk copies into shared memory (compute capability 9.0).
// `sink` is written only when the data says so, which random data does not.
void launch_bulk_read(const void* data, size_t bytes, int blocks, uint32_t* sink, cudaStream_t stream);

}  // namespace tern::cuda
