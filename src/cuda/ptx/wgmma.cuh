// Products of one warpgroup: d[64, N] (+)= a[64, 16] b[N, 16], both operands in shared memory, rows of 128 bytes in
// the 128-byte swizzle. Lane l of warp w holds rows 16 w + l/4 and + 8; d[4j], d[4j + 1] are columns 8j + 2 (l % 4) and
// the next of the first row, d[4j + 2], d[4j + 3] of the second.
#pragma once

#include <cstdint>

#include "cuda/ptx/wgmma_sums.cuh"

namespace tern::cuda::hopper {

// A descriptor in registers that a warp shares: all lanes have the same one, which the compiler does not see. Else it
// moves all of its words there before every product, and products of few columns wait for that.
__device__ __forceinline__ uint64_t warp_descriptor(uint64_t d) {
  const uint32_t low = __shfl_sync(0xffffffffu, static_cast<uint32_t>(d), 0);
  return (d & 0xffffffff00000000) | low;
}

// Rows of 64 bf16 values, groups of eight rows 1024 bytes apart; the tile begins at a multiple of 1024 bytes. Advancing
// by 16 values of k adds 2.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t shared) {
  return warp_descriptor((uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) |
                         ((shared & 0x3ffff) >> 4));
}

// Rows of 16 bf16 values in the 32-byte swizzle; the tile begins at a multiple of 256 bytes.
__device__ __forceinline__ uint64_t narrow_descriptor(uint32_t shared) {
  return warp_descriptor((uint64_t{3} << 62) | (uint64_t{256 >> 4} << 32) | (uint64_t{1} << 16) |
                         ((shared & 0x3ffff) >> 4));
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kLeft) : "memory");
}

// add = false: d is overwritten.
template <int kN>
struct Wgmma;

// kA, kB, kAdd: places of the descriptors and the predicate, behind the kN / 2 = kA sums.
// clang-format off
#define TERN_WGMMA(kN, kA, kB, kAdd)                                                                                 \
  template <>                                                                                                       \
  struct Wgmma<kN> {                                                                                                \
    static __device__ __forceinline__ void run(float (&d)[kN / 2], uint64_t a, uint64_t b, bool add) {              \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #kAdd ", 0;\n"                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" TERN_SUMS_##kA "}, %" #kA ", %" #kB \
                   ", p, 1, 1, 0, 0;}\n"                                                                            \
                   : TERN_OUT_##kA                                                                                  \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                                   \
    }                                                                                                               \
  };
TERN_WGMMA(8, 4, 5, 6)
TERN_WGMMA(16, 8, 9, 10)
TERN_WGMMA(24, 12, 13, 14)
TERN_WGMMA(32, 16, 17, 18)
TERN_WGMMA(40, 20, 21, 22)
TERN_WGMMA(48, 24, 25, 26)
TERN_WGMMA(56, 28, 29, 30)
TERN_WGMMA(64, 32, 33, 34)
TERN_WGMMA(72, 36, 37, 38)
TERN_WGMMA(80, 40, 41, 42)
TERN_WGMMA(88, 44, 45, 46)
TERN_WGMMA(96, 48, 49, 50)
TERN_WGMMA(104, 52, 53, 54)
TERN_WGMMA(112, 56, 57, 58)
TERN_WGMMA(120, 60, 61, 62)
TERN_WGMMA(128, 64, 65, 66)
TERN_WGMMA(136, 68, 69, 70)
TERN_WGMMA(144, 72, 73, 74)
TERN_WGMMA(152, 76, 77, 78)
TERN_WGMMA(160, 80, 81, 82)
TERN_WGMMA(208, 104, 105, 106)
TERN_WGMMA(256, 128, 129, 130)
#undef TERN_WGMMA
// clang-format on

}  // namespace tern::cuda::hopper
