// Every file of kernels is a module of its own in the driver's eyes. By default the driver loads a kernel when it is
// first launched, which allocates; load_kernels() does it at start for all of them.
#pragma once

#include "base/error.h"

namespace tern::cuda {

// Any kernel of a module stands for it. Called while the shared object is loaded (launch.cuh), once per file.
struct ModuleNote {
  explicit ModuleNote(const void* kernel);
};

// On the current device.
Status load_kernels();

}  // namespace tern::cuda
