// Products of one warpgroup whose left operand lies in registers and whose right one lies as in wgmma.cuh: d[64, N]
// (+)= a[64, 16] b[N, 16], rows of b of 128 bytes in the 128-byte swizzle. Registers of `a` are those of mma.m16n8k16.
#pragma once

#include <cstdint>

#include "cuda/ptx/wgmma_sums.cuh"

namespace tern::cuda::hopper {

// add = false: d is overwritten.
template <int kN>
struct WgmmaLeft;

// kA..kA3, kB, kAdd: places of the registers, the descriptor and the predicate, behind the kN / 2 = kA sums.
// clang-format off
#define TERN_WGMMA(kN, kA, kA1, kA2, kA3, kB, kAdd)                                                                    \
  template <>                                                                                                         \
  struct WgmmaLeft<kN> {                                                                                              \
    static __device__ __forceinline__ void run(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool add) {     \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #kAdd ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" TERN_SUMS_##kA "}, {%" #kA ",%" #kA1  \
                   ",%" #kA2 ",%" #kA3 "}, %" #kB ", p, 1, 1, 0;}\n"                                                  \
                   : TERN_OUT_##kA                                                                                    \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));                 \
    }                                                                                                                 \
  };
TERN_WGMMA(16, 8, 9, 10, 11, 12, 13)
TERN_WGMMA(32, 16, 17, 18, 19, 20, 21)
TERN_WGMMA(64, 32, 33, 34, 35, 36, 37)
TERN_WGMMA(128, 64, 65, 66, 67, 68, 69)
#undef TERN_WGMMA
// clang-format on

}  // namespace tern::cuda::hopper
