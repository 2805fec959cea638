// Memory in which weights that are codes are widened for products of many rows. Formats say while they pack how much
// they can use; a device takes it with its kernels (CudaDevice::load_kernels), before memory is measured. Only the
// stream that steps run on may use it.
#pragma once

#include <cstddef>

#include "cuda/runtime/context.h"

namespace tern::cuda {

struct WideRoom {
  void* data = nullptr;
  size_t bytes = 0;
};

void want_wide_room(int ordinal, size_t bytes);  // by any thread; the largest counts
size_t wanted_wide_room(int ordinal);
// Of one device at a time; empty: its owner goes.
void set_wide_room(int ordinal, WideRoom room);
// Empty where there is none for this stream.
WideRoom wide_room(const StreamState& s);

}  // namespace tern::cuda
