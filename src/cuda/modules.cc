#include "cuda/modules.h"

#include <cuda_runtime.h>

#include <set>
#include <vector>

#include "cuda/context.h"
#include "cuda/driver.h"

namespace tern::cuda {
namespace {

// Filled while the shared object is loaded, read afterwards.
std::vector<const void*>& anchors() {
  static std::vector<const void*> list;
  return list;
}

Error refused(const char* what, CUresult code) {
  return make_error(ErrorCode::kInternal, std::string("CUDA driver: ") + what + " failed with " + std::to_string(code));
}

Status load_library(const Driver& d, CUlibrary library) {
  unsigned count = 0;
  if (const CUresult r = d.kernel_count(&count, library); r != CUDA_SUCCESS) return refused("counting kernels", r);
  std::vector<CUkernel> kernels(count);
  if (const CUresult r = d.kernels(kernels.data(), count, library); r != CUDA_SUCCESS) {
    return refused("listing kernels", r);
  }
  for (CUkernel k : kernels) {
    CUfunction f = nullptr;
    CUresult r = d.kernel_function(&f, k);
    if (r == CUDA_SUCCESS) r = d.load_function(f);
    if (r != CUDA_SUCCESS) return refused("loading a kernel", r);
  }
  return {};
}

}  // namespace

ModuleNote::ModuleNote(const void* kernel) { anchors().push_back(kernel); }

Status load_kernels() {
  TERN_ASSIGN_OR_RETURN(const Driver* d, driver());
  std::set<CUlibrary> done;
  for (const void* anchor : anchors()) {
    cudaKernel_t kernel = nullptr;
    if (const cudaError_t e = cudaGetKernel(&kernel, anchor); e != cudaSuccess) return cuda_error("a module", e);
    CUlibrary library = nullptr;
    if (const CUresult r = d->kernel_library(&library, kernel); r != CUDA_SUCCESS) return refused("a module", r);
    if (done.insert(library).second) TERN_RETURN_IF_ERROR(load_library(*d, library));
  }
  return {};
}

}  // namespace tern::cuda
