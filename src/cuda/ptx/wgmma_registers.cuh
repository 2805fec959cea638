// Products of one warpgroup whose left operand lies in registers: d[64, N] += a[64, 16] b[16, N], b in shared memory
// with its N side contiguous (rows of one k, as values of attention lie). Registers of `a` are those of mma.m16n8k16;
// `d` as in wgmma.cuh.
#pragma once

#include <cstdint>

#include "cuda/ptx/wgmma_sums.cuh"

namespace tern::cuda::hopper {

// Rows of 64 values of N in the 128-byte swizzle, one row per k, groups of eight rows 1024 bytes apart; the next 64
// values of N begin `next_bytes` further on. Advancing by 16 of k adds 128.
__device__ __forceinline__ uint64_t column_descriptor(uint32_t shared, uint32_t next_bytes) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{next_bytes >> 4} << 16) |
         ((shared & 0x3ffff) >> 4);
}

template <int kN>
struct WgmmaRegisters;

// kA..kA3, kB: places of the registers and the descriptor, behind the kN / 2 = kA sums.
// clang-format off
#define TERN_WGMMA(kN, kA, kA1, kA2, kA3, kB)                                                                          \
  template <>                                                                                                         \
  struct WgmmaRegisters<kN> {                                                                                         \
    static __device__ __forceinline__ void run(float (&d)[kN / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, \
                                               uint64_t b) {                                                          \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" TERN_SUMS_##kA "}, {%" #kA ",%" #kA1  \
                   ",%" #kA2 ",%" #kA3 "}, %" #kB ", 1, 1, 1, 1;\n"                                                   \
                   : TERN_OUT_##kA                                                                                    \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                                     \
    }                                                                                                                 \
  };
TERN_WGMMA(64, 32, 33, 34, 35, 36)
TERN_WGMMA(72, 36, 37, 38, 39, 40)
TERN_WGMMA(80, 40, 41, 42, 43, 44)
TERN_WGMMA(128, 64, 65, 66, 67, 68)
TERN_WGMMA(256, 128, 129, 130, 131, 132)
#undef TERN_WGMMA
// clang-format on

// The same with `a` in shared memory, as in wgmma.cuh.
struct WgmmaColumns256 {
  static __device__ __forceinline__ void run(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TERN_SUMS_128
                 "}, %128, %129, 1, 1, 1, 0, 1;\n"
                 : TERN_OUT_128
                 : "l"(a), "l"(b));
  }
};

}  // namespace tern::cuda::hopper
