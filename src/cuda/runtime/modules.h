// What the driver has to know of kernels before they are launched. Every file of kernels is a module of its own in its
// eyes. By default it loads a kernel when it is first launched, which allocates; load_kernels() does it at start for
// all of them.
#pragma once

#include <cstddef>

#include "base/error.h"

namespace tern::cuda {

// Any kernel of a module stands for it. Called while the shared object is loaded (launch.cuh), once per file.
struct ModuleNote {
  explicit ModuleNote(const void* kernel);
};

// On the current device.
Status load_kernels();

// Lets blocks of `kernel` on the current device use so many bytes of dynamic shared memory, or more if they may
// already. The driver takes a microsecond for it, so it is told once; no lock is taken then. `name` is for errors.
Status allow_shared(const char* name, const void* kernel, size_t bytes);

}  // namespace tern::cuda
