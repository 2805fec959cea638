// Products of one warpgroup as in wgmma.cuh, d[64, N], for N up to 240 in steps of 16.
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
#define TERN_R11 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define TERN_R12 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define TERN_R13 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define TERN_R14 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define TERN_R15 ",%112,%113,%114,%115,%116,%117,%118,%119"
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
#define TERN_L11 TERN_L10 TERN_R11
#define TERN_L12 TERN_L11 TERN_R12
#define TERN_L13 TERN_L12 TERN_R13
#define TERN_L14 TERN_L13 TERN_R14
#define TERN_L15 TERN_L14 TERN_R15
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
#define TERN_O11 TERN_O10, TERN_D8(80)
#define TERN_O12 TERN_O11, TERN_D8(88)
#define TERN_O13 TERN_O12, TERN_D8(96)
#define TERN_O14 TERN_O13, TERN_D8(104)
#define TERN_O15 TERN_O14, TERN_D8(112)

// kA, kB, kP: places of the descriptors and the predicate, behind the sums.
#define TERN_WGMMA(kN, kEights, kA, kB, kP)                                                                     \
  template <>                                                                                                   \
  struct Wgmma<kN> {                                                                                            \
    static __device__ __forceinline__ void run(float (&d)[kN / 2], uint64_t a, uint64_t b, bool add) {          \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #kP ", 0;\n"                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" TERN_L##kEights "}, %" #kA     \
                   ", %" #kB ", p, 1, 1, 0, 0;}\n"                                                              \
                   : TERN_O##kEights                                                                            \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                               \
    }                                                                                                           \
  };
TERN_WGMMA(48, 3, 24, 25, 26)
TERN_WGMMA(80, 5, 40, 41, 42)
TERN_WGMMA(96, 6, 48, 49, 50)
TERN_WGMMA(112, 7, 56, 57, 58)
TERN_WGMMA(144, 9, 72, 73, 74)
TERN_WGMMA(160, 10, 80, 81, 82)
TERN_WGMMA(176, 11, 88, 89, 90)
TERN_WGMMA(192, 12, 96, 97, 98)
TERN_WGMMA(208, 13, 104, 105, 106)
TERN_WGMMA(224, 14, 112, 113, 114)
TERN_WGMMA(240, 15, 120, 121, 122)
// clang-format on

#undef TERN_WGMMA
#undef TERN_D4
#undef TERN_D8
#undef TERN_R1
#undef TERN_L1
#undef TERN_O1
#undef TERN_R2
#undef TERN_L2
#undef TERN_O2
#undef TERN_R3
#undef TERN_L3
#undef TERN_O3
#undef TERN_R4
#undef TERN_L4
#undef TERN_O4
#undef TERN_R5
#undef TERN_L5
#undef TERN_O5
#undef TERN_R6
#undef TERN_L6
#undef TERN_O6
#undef TERN_R7
#undef TERN_L7
#undef TERN_O7
#undef TERN_R8
#undef TERN_L8
#undef TERN_O8
#undef TERN_R9
#undef TERN_L9
#undef TERN_O9
#undef TERN_R10
#undef TERN_L10
#undef TERN_O10
#undef TERN_R11
#undef TERN_L11
#undef TERN_O11
#undef TERN_R12
#undef TERN_L12
#undef TERN_O12
#undef TERN_R13
#undef TERN_L13
#undef TERN_O13
#undef TERN_R14
#undef TERN_L14
#undef TERN_O14
#undef TERN_R15
#undef TERN_L15
#undef TERN_O15

}  // namespace tern::cuda::hopper
