#include "cuda/runtime/driver.h"

#include <dlfcn.h>

namespace tern::cuda {
namespace {

template <class F>
bool find(void* library, const char* name, F& f) {
  f = reinterpret_cast<F>(dlsym(library, name));
  return f != nullptr;
}

bool load(Driver& d) {
  void* l = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return l != nullptr && find(l, "cuMemAddressReserve", d.reserve) && find(l, "cuMemAddressFree", d.free_addresses) &&
         find(l, "cuMemCreate", d.create) && find(l, "cuMemRelease", d.release) && find(l, "cuMemMap", d.map) &&
         find(l, "cuMemUnmap", d.unmap) && find(l, "cuMemSetAccess", d.set_access) &&
         find(l, "cuMemGetAllocationGranularity", d.granularity) && find(l, "cuTensorMapEncodeTiled", d.encode_map) &&
         find(l, "cuKernelGetLibrary", d.kernel_library) && find(l, "cuLibraryGetKernelCount", d.kernel_count) &&
         find(l, "cuLibraryEnumerateKernels", d.kernels) && find(l, "cuKernelGetFunction", d.kernel_function) &&
         find(l, "cuFuncLoad", d.load_function);
}

}  // namespace

Expected<const Driver*> driver() {
  // Written once, never changed: what the loader found in this process.
  static const struct Loaded {
    Driver functions;
    bool ok = load(functions);
  } loaded;
  if (!loaded.ok)
    return make_error(ErrorCode::kUnsupported, "the NVIDIA driver lacks functions of CUDA 12.5 or no tensor maps");
  return &loaded.functions;
}

}  // namespace tern::cuda
