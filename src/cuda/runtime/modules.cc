#include "cuda/runtime/modules.h"

#include <cuda_runtime.h>

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/runtime/context.h"
#include "cuda/runtime/driver.h"

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

// What blocks of a kernel may use. A place is taken for good and its bytes never become fewer.
struct Allowance {
  std::atomic<const void*> kernel{nullptr};
  std::atomic<size_t> bytes{0};
};

// By device. What finds no room is told to the driver each time.
class Allowances {
 public:
  bool holds(int device, const void* kernel, size_t bytes) const {
    for (size_t i = 0; device < kDevices && i < kPlaces; ++i) {
      const Allowance& a = places_[device][place(kernel, i)];
      const void* found = a.kernel.load(std::memory_order_acquire);
      if (found == kernel) return a.bytes.load(std::memory_order_acquire) >= bytes;
      if (found == nullptr) break;
    }
    return false;
  }
  // One thread at a time.
  void note(int device, const void* kernel, size_t bytes) {
    for (size_t i = 0; device < kDevices && i < kPlaces; ++i) {
      Allowance& a = places_[device][place(kernel, i)];
      const void* found = a.kernel.load(std::memory_order_relaxed);
      if (found != nullptr && found != kernel) continue;
      a.bytes.store(bytes, std::memory_order_release);  // before anybody finds the kernel here
      a.kernel.store(kernel, std::memory_order_release);
      return;
    }
  }

 private:
  static constexpr int kDevices = 16;
  static constexpr size_t kPlaces = 1024;
  static size_t place(const void* kernel, size_t i) { return (reinterpret_cast<uintptr_t>(kernel) / 16 + i) % kPlaces; }

  Allowance places_[kDevices][kPlaces];
};

constinit Allowances allowances;
std::mutex allowing;

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

Status allow_shared(const char* name, const void* kernel, size_t bytes) {
  int device = 0;
  if (const cudaError_t e = cudaGetDevice(&device); e != cudaSuccess) return cuda_error(name, e);
  if (allowances.holds(device, kernel, bytes)) return {};
  const std::scoped_lock lock(allowing);  // else one thread could set less than another one has just asked for
  if (allowances.holds(device, kernel, bytes)) return {};
  const cudaError_t e =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (e != cudaSuccess) return cuda_error(name, e);
  allowances.note(device, kernel, bytes);
  return {};
}

}  // namespace tern::cuda
