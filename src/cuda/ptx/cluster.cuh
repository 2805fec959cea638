// What the blocks of one row tell each other: a cluster whose members write into each other's shared memory. A cluster
// of one is a block by itself and needs no cluster.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tern::cuda {

// Says that this thread is done with what others may change, or has written what others wait for.
// Shared memory of others may be touched only once they have arrived for the first time, and until they arrive for the
// last time.
template <int kClusterSize>
__device__ __forceinline__ void cluster_arrive() {
  __syncwarp();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kClusterSize > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#elif defined(TERN_EMULATED)
  if constexpr (kClusterSize > 1) emu::arrive_cluster();
#endif
}
template <int kClusterSize>
__device__ __forceinline__ void cluster_wait() {
  __syncwarp();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kClusterSize > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#elif defined(TERN_EMULATED)
  if constexpr (kClusterSize > 1) emu::wait_cluster();
#endif
}

// All threads of all blocks of the cluster.
template <int kClusterSize>
__device__ __forceinline__ void cluster_barrier() {
  if constexpr (kClusterSize > 1) {
    cluster_arrive<kClusterSize>();
    cluster_wait<kClusterSize>();
  } else {
    __syncthreads();
  }
}

// The word at the place of `own` in block `rank` of the cluster.
template <int kClusterSize>
__device__ __forceinline__ void cluster_store(unsigned long long* own, int rank, unsigned long long v) {
  if constexpr (kClusterSize == 1) {
    *own = v;
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nst.shared::cluster.u64 [at], %2;}" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(own))),
                 "r"(rank), "l"(v)
                 : "memory");
#elif defined(TERN_EMULATED)
    *static_cast<unsigned long long*>(emu::of_block(own, rank)) = v;
#endif
  }
}
template <int kClusterSize>
__device__ __forceinline__ unsigned long long cluster_load(const unsigned long long* own, int rank) {
  unsigned long long v = 0;
  if constexpr (kClusterSize == 1) {
    v = *own;
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b32 at;\nmapa.shared::cluster.u32 at, %1, %2;\nld.shared::cluster.u64 %0, [at];}"
                 : "=l"(v)
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(own))), "r"(rank)
                 : "memory");
#elif defined(TERN_EMULATED)
    v = *static_cast<unsigned long long*>(emu::of_block(own, rank));
#endif
  }
  return v;
}
// Four floats at the place of `own` in block `rank`.
template <int kClusterSize>
__device__ __forceinline__ float4 cluster_load(const float4* own, int rank) {
  float4 v{};
  if constexpr (kClusterSize == 1) {
    v = *own;
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{.reg .b32 at;\nmapa.shared::cluster.u32 at, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [at];}"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(own))), "r"(rank)
        : "memory");
#elif defined(TERN_EMULATED)
    v = *static_cast<float4*>(emu::of_block(own, rank));
#endif
  }
  return v;
}
// Sets bits of the word at the place of `own` in block `rank`; any thread at any time.
template <int kClusterSize>
__device__ __forceinline__ void cluster_or(uint32_t* own, int rank, uint32_t bits) {
  if constexpr (kClusterSize == 1) {
    atomicOr(own, bits);
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nred.relaxed.cluster.shared::cluster.or.b32 [at], %2;}" ::
            "r"(static_cast<uint32_t>(__cvta_generic_to_shared(own))),
        "r"(rank), "r"(bits)
        : "memory");
#elif defined(TERN_EMULATED)
    *static_cast<uint32_t*>(emu::of_block(own, rank)) |= bits;
#endif
  }
}

}  // namespace tern::cuda
