// The driver's functions that cudart does not have, through dlopen: virtual memory, tensor maps.
#pragma once

#include <cuda.h>

#include "base/error.h"

namespace tern::cuda {

struct Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuKernelGetLibrary) kernel_library = nullptr;
  decltype(&cuLibraryGetKernelCount) kernel_count = nullptr;
  decltype(&cuLibraryEnumerateKernels) kernels = nullptr;
  decltype(&cuKernelGetFunction) kernel_function = nullptr;
  decltype(&cuFuncLoad) load_function = nullptr;
  decltype(&cuTensorMapEncodeTiled) encode_map = nullptr;
};

// libcuda.so.1, loaded once; an error when it is not there or too old.
Expected<const Driver*> driver();

}  // namespace tern::cuda
