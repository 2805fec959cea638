// Bytes in one piece through the copy engine, which needs no tensor map for them.
#pragma once

#include "cuda/ptx/hopper.cuh"

namespace tern::cuda::hopper {

// `bytes` bytes, a multiple of 16 at multiples of 16, into this block's shared memory; they complete on `barrier`.
__device__ __forceinline__ void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier,
                                           uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
      "\n" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

}  // namespace tern::cuda::hopper
