// What GPUs write into each other's memory, and the one place where a kernel waits for another GPU. Words of 16 bytes
// are two values, each beside the count of the collective it belongs to: whoever finds the count has the value, so that
// neither a fence nor a second trip is needed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tern::cuda {

__device__ __forceinline__ void put_word(uint4* to, const uint4& v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint4 see_word(const uint4* from) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
// Everything that this thread, and others before a barrier of the block, wrote comes before it.
__device__ __forceinline__ void put_flag(uint32_t* to, uint32_t v) {
  asm volatile("fence.acq_rel.sys;\nst.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ uint32_t see_flag(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void fence_peers() { __threadfence_system(); }
// Of memory that another GPU has written or will write: past this one's caches.
__device__ __forceinline__ float4 see_four(const float* from) {
  float4 v;
  asm volatile("ld.volatile.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// Until ready(), which looks at memory that others write. Ends also when a rank has failed: results say nothing then.
template <class Ready>
__device__ __forceinline__ void wait_for_peer(const uint32_t* failed, Ready&& ready) {
  constexpr unsigned kLook = 1 << 12;  // tries between two looks at the host's memory, which is far
  for (unsigned tries = 1; !ready(); ++tries) {
    if (tries % kLook == 0 && *static_cast<const volatile uint32_t*>(failed) != 0) return;
  }
}

}  // namespace tern::cuda
