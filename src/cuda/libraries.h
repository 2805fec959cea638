// Libraries found at run time. Search order, first hit wins: the folders given (--cuda-library-path, the program's own
// folder), the system's loader (LD_LIBRARY_PATH, ld.so.cache), /usr/local/cuda/lib64, then NVIDIA's Python wheels
// beside them (nvidia/cu13/lib, nvidia/cublas/lib, nvidia/nccl/lib under each folder given).
#pragma once

#include <string>
#include <vector>

namespace tern::cuda {

// A handle of dlopen, or null. Never closed: drivers dislike it.
void* open_library(const std::vector<std::string>& names, const std::vector<std::string>& folders);

}  // namespace tern::cuda
