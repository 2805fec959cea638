// What a device::Stream of a CUDA device points to, and how ops reach the driver through it.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "base/error.h"
#include "device/device.h"

namespace tern::cuda {

class BlasLt;
struct Deferred;

// Lives as long as its device. One thread uses a stream and everything behind it.
struct StreamState {
  cudaStream_t stream = nullptr;
  int ordinal = 0;
  int multiprocessors = 1;
  int arch = 80;                // compute capability as 80, 86, 90; TERN_CUDA_ARCH lowers it
  int smem_limit = 48 * 1024;   // bytes of shared memory that one block may use
  bool deterministic = false;   // one chain of operations per value, whatever else is in the batch
  bool pdl = false;             // kernels may start while the one before them ends (launch.cuh)
  float4* parts = nullptr;      // of products whose k is cut (gemm_streamk.cuh); null: this stream has none
  uint32_t* tickets = nullptr;  // kTickets, by warps of tiles of such a product, zero between launches
  bool microbatch = false;  // other chains of kernels of the same step run beside this one (Device::microbatch_stream)
  bool microbatches = false;  // the device has such streams
  bool joins = false;         // the next kernel stands behind other streams too: no dependent launch
  bool waits = false;         // blocks of a kernel may wait for each other: two such kernels at once might never end
  BlasLt* blas = nullptr;     // null: own kernels only
  const char* last_kernel = "none";  // the kernel that the last op chose
  // What is known to be complete when the kernel after the last one starts, dependent launch or not: what the last one
  // read, after its wait and before it let the next one start. Null: nothing.
  const void* settled = nullptr;
  float* squares = nullptr;      // kNormSquaresBytes (gemm_args.h), or null
  Deferred* deferred = nullptr;  // ops that wait for what follows (deferred.h)
};

inline StreamState& state(device::Stream s) { return *static_cast<StreamState*>(s.native); }
inline cudaStream_t raw(device::Stream s) { return state(s).stream; }

inline Error cuda_error(const char* what, cudaError_t code) {
  return make_error(ErrorCode::kInternal, std::string("CUDA: ") + what + ": " + cudaGetErrorString(code));
}

// After a launch: remembers which kernel it was and reports what the launch itself refused.
inline Status launched(device::Stream s, const char* kernel) {
  state(s).last_kernel = kernel;
  state(s).settled = nullptr;
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return cuda_error(kernel, code);
  return {};
}

// Whether the portable files of this build have the waits that programmatic dependent launch needs (launch.cu).
bool waits_compiled();

inline int64_t blocks_for(int64_t n, int64_t per_block) { return (n + per_block - 1) / per_block; }

}  // namespace tern::cuda
