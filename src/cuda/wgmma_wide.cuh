// Products of one warpgroup as in wgmma.cuh, d[64, N], for N up to 160 in steps of 8.
#pragma once

#include "cuda/wgmma.cuh"

namespace tern::cuda::hopper {

// clang-format off
#define TERN_R1 "%0,%1,%2,%3,%4,%5,%6,%7"
#define TERN_R2 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define TERN_R3 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define TERN_R4 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define TERN_R5 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define TERN_R6 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define TERN_R7 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define TERN_R8 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define TERN_R9 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define TERN_R10 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define TERN_H1 ",%8,%9,%10,%11"
#define TERN_H2 ",%16,%17,%18,%19"
#define TERN_H3 ",%24,%25,%26,%27"
#define TERN_H4 ",%32,%33,%34,%35"
#define TERN_H5 ",%40,%41,%42,%43"
#define TERN_H6 ",%48,%49,%50,%51"
#define TERN_H7 ",%56,%57,%58,%59"
#define TERN_H8 ",%64,%65,%66,%67"
#define TERN_H9 ",%72,%73,%74,%75"
#define TERN_L1 TERN_R1
#define TERN_L2 TERN_L1 TERN_R2
#define TERN_L3 TERN_L2 TERN_R3
#define TERN_L4 TERN_L3 TERN_R4
#define TERN_L5 TERN_L4 TERN_R5
#define TERN_L6 TERN_L5 TERN_R6
#define TERN_L7 TERN_L6 TERN_R7
#define TERN_L8 TERN_L7 TERN_R8
#define TERN_L9 TERN_L8 TERN_R9
#define TERN_L10 TERN_L9 TERN_R10
#define TERN_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TERN_D8(i) TERN_D4(i), TERN_D4(i + 4)
#define TERN_O1 TERN_D8(0)
#define TERN_O2 TERN_O1, TERN_D8(8)
#define TERN_O3 TERN_O2, TERN_D8(16)
#define TERN_O4 TERN_O3, TERN_D8(24)
#define TERN_O5 TERN_O4, TERN_D8(32)
#define TERN_O6 TERN_O5, TERN_D8(40)
#define TERN_O7 TERN_O6, TERN_D8(48)
#define TERN_O8 TERN_O7, TERN_D8(56)
#define TERN_O9 TERN_O8, TERN_D8(64)
#define TERN_O10 TERN_O9, TERN_D8(72)
#define TERN_Q1 TERN_O1, TERN_D4(8)
#define TERN_Q2 TERN_O2, TERN_D4(16)
#define TERN_Q3 TERN_O3, TERN_D4(24)
#define TERN_Q4 TERN_O4, TERN_D4(32)
#define TERN_Q5 TERN_O5, TERN_D4(40)
#define TERN_Q6 TERN_O6, TERN_D4(48)
#define TERN_Q7 TERN_O7, TERN_D4(56)
#define TERN_Q8 TERN_O8, TERN_D4(64)
#define TERN_Q9 TERN_O9, TERN_D4(72)

// kList, kOut: the sums; kA, kB, kP: places of the descriptors and the predicate, behind the sums.
#define TERN_WGMMA(kN, kList, kOut, kA, kB, kP)                                                             \
  template <>                                                                                               \
  struct Wgmma<kN> {                                                                                        \
    static __device__ __forceinline__ void run(float (&d)[kN / 2], uint64_t a, uint64_t b, bool add) {      \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #kP ", 0;\n"                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" kList "}, %" #kA           \
                   ", %" #kB ", p, 1, 1, 0, 0;}\n"                                                          \
                   : kOut                                                                                   \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                           \
    }                                                                                                       \
  };
TERN_WGMMA(24, TERN_L1 TERN_H1, TERN_Q1, 12, 13, 14)
TERN_WGMMA(40, TERN_L2 TERN_H2, TERN_Q2, 20, 21, 22)
TERN_WGMMA(48, TERN_L3, TERN_O3, 24, 25, 26)
TERN_WGMMA(56, TERN_L3 TERN_H3, TERN_Q3, 28, 29, 30)
TERN_WGMMA(72, TERN_L4 TERN_H4, TERN_Q4, 36, 37, 38)
TERN_WGMMA(80, TERN_L5, TERN_O5, 40, 41, 42)
TERN_WGMMA(88, TERN_L5 TERN_H5, TERN_Q5, 44, 45, 46)
TERN_WGMMA(96, TERN_L6, TERN_O6, 48, 49, 50)
TERN_WGMMA(104, TERN_L6 TERN_H6, TERN_Q6, 52, 53, 54)
TERN_WGMMA(112, TERN_L7, TERN_O7, 56, 57, 58)
TERN_WGMMA(120, TERN_L7 TERN_H7, TERN_Q7, 60, 61, 62)
TERN_WGMMA(136, TERN_L8 TERN_H8, TERN_Q8, 68, 69, 70)
TERN_WGMMA(144, TERN_L9, TERN_O9, 72, 73, 74)
TERN_WGMMA(152, TERN_L9 TERN_H9, TERN_Q9, 76, 77, 78)
TERN_WGMMA(160, TERN_L10, TERN_O10, 80, 81, 82)
// clang-format on

#undef TERN_R1
#undef TERN_R2
#undef TERN_R3
#undef TERN_R4
#undef TERN_R5
#undef TERN_R6
#undef TERN_R7
#undef TERN_R8
#undef TERN_R9
#undef TERN_R10
#undef TERN_H1
#undef TERN_H2
#undef TERN_H3
#undef TERN_H4
#undef TERN_H5
#undef TERN_H6
#undef TERN_H7
#undef TERN_H8
#undef TERN_H9
#undef TERN_L1
#undef TERN_L2
#undef TERN_L3
#undef TERN_L4
#undef TERN_L5
#undef TERN_L6
#undef TERN_L7
#undef TERN_L8
#undef TERN_L9
#undef TERN_L10
#undef TERN_D4
#undef TERN_D8
#undef TERN_O1
#undef TERN_O2
#undef TERN_O3
#undef TERN_O4
#undef TERN_O5
#undef TERN_O6
#undef TERN_O7
#undef TERN_O8
#undef TERN_O9
#undef TERN_O10
#undef TERN_Q1
#undef TERN_Q2
#undef TERN_Q3
#undef TERN_Q4
#undef TERN_Q5
#undef TERN_Q6
#undef TERN_Q7
#undef TERN_Q8
#undef TERN_Q9
#undef TERN_WGMMA

}  // namespace tern::cuda::hopper
