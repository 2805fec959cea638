// The one symbol of the shared object: a table of everything it offers.
#include "cuda/collective/group.h"
#include "cuda/gemm/blaslt.h"
#include "cuda/host/device.h"
#include "cuda/host/measure.h"
#include "cuda/runtime/cuda_ops.h"
#include "ops/loaded_backend.h"

namespace tern::cuda {
namespace {

const ops::Backend& backend() {
  static const ops::Backend table = [] {
    ops::Backend b;
#define TERN_OP(name, Params) b.name = name;
#define TERN_OP_OPTIONAL(name, Params) b.name = name;
#define TERN_OP_FUNCTION(Result, name, Parameters) b.name = name;
#define TERN_OP_FUNCTION_OPTIONAL(Result, name, Parameters) b.name = name;
#include "ops/op_list.inc"
    return b;
  }();
  return table;
}

const char* last_kernel(device::Stream s) { return state(s).last_kernel; }

Status save_blas_cache(device::Stream s) {
  if (state(s).blas == nullptr || state(s).blas->settle()) return {};
  return make_error(ErrorCode::kIo, "the file of cuBLASLt's algorithms cannot be written");
}

}  // namespace
}  // namespace tern::cuda

extern "C" __attribute__((visibility("default"))) const tern::device::CudaLibrary* tern_cuda_library() {
  using namespace tern;
  static const device::CudaLibrary library = [] {
    device::CudaLibrary l;
    l.version = device::kCudaLibraryVersion;
    l.device_layout = device::cuda_device_layout();
    l.ops_layout = ops::backend_layout();
    l.device_count = cuda::device_count;
    l.make_device = cuda::make_device;
    l.make_communicators = cuda::make_communicators;
    l.ops = &cuda::backend();
    l.last_kernel = cuda::last_kernel;
    l.save_blas_cache = cuda::save_blas_cache;
    l.measure = cuda::measure;
    l.interface = TERN_INTERFACE;
    return l;
  }();
  return &library;
}
