// The CUDA side as this program sees it: a shared object that is loaded when it is asked for, and one table in it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/communicator.h"
#include "device/device.h"
#include "device/kv_layout.h"
#include "device/measure.h"
#include "device/tensor.h"

namespace tern::device {

struct CudaOptions {
  int ordinal = 0;              // --device cuda:n
  int arch_limit = 0;           // TERN_CUDA_ARCH: 80 keeps to the portable kernels on any GPU; 0: what the GPU is
  int shared_memory_limit = 0;  // TERN_CUDA_SMEM_LIMIT, KiB per block; 0: what the GPU has
  bool deterministic = false;   // FD_DETERMINISTIC_MODE
  bool cublaslt = true;         // false: own kernels only
  std::vector<std::string> search_folders;  // searched first for cuBLASLt and NCCL; NVIDIA's Python wheels below them
  std::string blas_cache_file;              // algorithms found are kept there; empty: not kept
  std::vector<std::string> more_folders;    // searched after the system's own places: beside the program, Python's
  int microbatches =
      0;            // TERN_CUDA_MICROBATCHES: parts of a small model's decode step, side by side; 0: as suits the GPU
  bool pdl = true;  // FD_ENABLE_PDL: kernels start before the one ahead of them has ended
};

// Both sides are built from one source: `version`, the layouts and `interface` guard against
// mixing builds.
struct CudaLibrary {
  uint32_t version = 0;
  uint64_t device_layout = 0;  // cuda_device_layout() of the other side
  uint64_t ops_layout = 0;     // ops::backend_layout() of the other side
  // GPUs that the driver shows; an error in one line when there is no driver or it is too old.
  Expected<int> (*device_count)() = nullptr;
  Expected<std::unique_ptr<Device>> (*make_device)(const CudaOptions&) = nullptr;
  // Ranks that are GPUs of this process, by rank; they outlive the group. Before anything large is allocated: from here
  // on they see each other's memory. Errors, of one line: GPUs that differ or have no peer access, too many of them.
  Expected<std::unique_ptr<CommunicatorGroup>> (*make_communicators)(std::span<Device* const>) = nullptr;
  const void* ops = nullptr;  // const ops::Backend*
  // The kernel that the last op on this stream chose (tests).
  const char* (*last_kernel)(Stream) = nullptr;
  // Writes what cuBLASLt was asked to CudaOptions::blas_cache_file. Not on the step path.
  Status (*save_blas_cache)(Stream) = nullptr;
  // Allocates, waits: for benchmarks, while nothing else uses the stream.
  Expected<Measured> (*measure)(const MeasureRequest&, Stream) = nullptr;
  // Of the headers the other side was compiled with (cmake/interface.cmake): says what sizes do not, such as the order
  // of functions.
  uint64_t interface = 0;
};

inline constexpr uint32_t kCudaLibraryVersion = 2;
inline constexpr const char* kCudaLibraryName = "libtern_cuda.so";
inline constexpr const char* kCudaLibrarySymbol = "tern_cuda_library";

// Sizes of what crosses the border, folded into one number.
constexpr uint64_t fold_layout(uint64_t h, size_t size) { return (h ^ size) * 0x100000001b3u; }
constexpr uint64_t cuda_device_layout() {
  uint64_t h = 0xcbf29ce484222325u + kKvLayoutVersion;
  for (const size_t size : {sizeof(CudaOptions), sizeof(CudaLibrary), sizeof(Device), sizeof(DeviceInfo),
                            sizeof(Buffer), sizeof(Stream), sizeof(TensorView), sizeof(KvSpec), sizeof(KvLayerView),
                            sizeof(Status), sizeof(std::string), sizeof(MeasureRequest)}) {
    h = fold_layout(h, size);
  }
  return h;
}

// CudaLibrary::interface of a library that belongs to this program.
uint64_t cuda_interface();
// Why the table is not used; `path` is where it comes from. One line.
Status check_cuda_library(const CudaLibrary* library, const std::string& path);

// Loads libtern_cuda.so: from `folders` in their order, then beside this program, then from the folder cuda beside this
// program's (a build tree), then where the system looks. It stays loaded. The error says in one line what is missing.
// Loading needs no driver; device_count() tells about that.
Expected<const CudaLibrary*> load_cuda_library(const std::vector<std::string>& folders);

// The folder of the running program; "" when the system does not say.
std::string program_folder();

}  // namespace tern::device
