// For which architecture the portable files of this build were compiled.
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {
namespace {

__global__ void probe_kernel() { wait_for_previous(); }

}  // namespace

bool waits_compiled() {
  cudaFuncAttributes found{};
  const cudaError_t code = cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(&probe_kernel));
  return code == cudaSuccess && found.ptxVersion >= 90;
}

}  // namespace tern::cuda
