// The copy engine of Hopper with weights in units of rows (tensor_map_units).
#pragma once

#include "cuda/ptx/hopper.cuh"

namespace tern::cuda::hopper {

// Units of rows from `unit` on (tensor_map_units), planes from `plane` on.
__device__ __forceinline__ void load_units(void* to, const CUtensorMap* map, uint64_t* barrier, int unit, int plane,
                                           uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %3, %3, %4, %5}], [%2], %6;\n" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(0), "r"(unit), "r"(plane), "l"(policy)
      : "memory");
}
// The same for every block of `mask` (bits are ranks in the cluster), at the same places of shared memory, each with
// its own barrier.
__device__ __forceinline__ void load_units_all(void* to, const CUtensorMap* map, uint64_t* barrier, int unit, int plane,
                                               uint16_t mask, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %3, %3, %4, %5}], [%2], %6, %7;\n" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(0), "r"(unit), "r"(plane), "h"(mask), "l"(policy)
      : "memory");
}
// Brings the same into the second-level cache only.
__device__ __forceinline__ void prefetch_units(const CUtensorMap* map, int unit, int plane) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %1, %1, %2, %3}];\n" ::"l"(map), "r"(0),
               "r"(unit), "r"(plane)
               : "memory");
}

}  // namespace tern::cuda::hopper
