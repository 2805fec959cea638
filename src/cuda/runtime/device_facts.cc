#include "cuda/runtime/device_facts.h"

#include "cuda/runtime/context.h"
#include "cuda/runtime/wide_room.h"

namespace tern::cuda {

DeviceFacts device_facts(device::Stream stream) {
  const StreamState& s = state(stream);
  DeviceFacts f;
  f.multiprocessors = s.multiprocessors, f.arch = s.arch, f.smem_limit = s.smem_limit;
  f.deterministic = s.deterministic, f.waits = s.waits;
  f.library = s.blas != nullptr, f.parts = s.parts != nullptr, f.wide_bytes = wide_room(s).bytes;
#ifdef TERN_CUDA_EMULATED
  f.sm90_files = false;
#endif
  return f;
}

}  // namespace tern::cuda
