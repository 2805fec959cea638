#include "ops/loaded_backend.h"

namespace tern::ops {

Status register_cuda_ops(const device::CudaLibrary& library) {
  if (library.ops_layout != backend_layout() || library.ops == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      "the CUDA side belongs to another build of this program: install both from one", "device");
  }
  register_backend(device::DeviceKind::kCuda, static_cast<const Backend*>(library.ops));
  return {};
}

}  // namespace tern::ops
