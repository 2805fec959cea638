// Libraries found at run time. Search order, first hit wins: the folders given by hand (TERN_CUDA_LIBRARY), the
// system's loader (LD_LIBRARY_PATH, ld.so.cache), /usr/local/cuda, the program's own folder, then NVIDIA's Python
// wheels (nvidia/cu13/lib, nvidia/cublas/lib, nvidia/nccl/lib under each folder).
#pragma once

#include <string>
#include <vector>

namespace tern::cuda {

struct LibraryPlaces {
  std::vector<std::string> first, last;  // before and after what the system knows
};

// A handle of dlopen, or null. Never closed: drivers dislike it.
void* open_library(const std::vector<std::string>& names, const LibraryPlaces& places);

}  // namespace tern::cuda
