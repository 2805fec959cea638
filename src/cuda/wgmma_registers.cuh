// Products of one warpgroup whose left operand lies in registers: d[64, N] += a[64, 16] b[16, N], b in shared memory
// with its N side contiguous (rows of one k, as values of attention lie). Registers of `a` are those of mma.m16n8k16;
// `d` as in wgmma.cuh.
#pragma once

#include <cstdint>

namespace tern::cuda::hopper {

// Rows of 64 values of N in the 128-byte swizzle, one row per k, groups of eight rows 1024 bytes apart; the next 64
// values of N begin `next_bytes` further on. Advancing by 16 of k adds 128.
__device__ __forceinline__ uint64_t column_descriptor(uint32_t shared, uint32_t next_bytes) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{next_bytes >> 4} << 16) |
         ((shared & 0x3ffff) >> 4);
}

template <int kN>
struct WgmmaRegisters;

// clang-format off
#define TERN_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TERN_D16(i) TERN_D4(i), TERN_D4(i + 4), TERN_D4(i + 8), TERN_D4(i + 12)

template <>
struct WgmmaRegisters<64> {
  static __device__ __forceinline__ void run(float (&d)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        " {%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"
        : TERN_D16(0), TERN_D16(16)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
  }
};

template <>
struct WgmmaRegisters<72> {
  static __device__ __forceinline__ void run(float (&d)[36], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35},"
        " {%36,%37,%38,%39}, %40, 1, 1, 1, 1;\n"
        : TERN_D16(0), TERN_D16(16), TERN_D4(32)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
  }
};

template <>
struct WgmmaRegisters<80> {
  static __device__ __forceinline__ void run(float (&d)[40], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39},"
        " {%40,%41,%42,%43}, %44, 1, 1, 1, 1;\n"
        : TERN_D16(0), TERN_D16(16), TERN_D4(32), TERN_D4(36)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
  }
};

template <>
struct WgmmaRegisters<128> {
  static __device__ __forceinline__ void run(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
        " {%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"
        : TERN_D16(0), TERN_D16(16), TERN_D16(32), TERN_D16(48)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
  }
};

#define TERN_R128 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"

template <>
struct WgmmaRegisters<256> {
  static __device__ __forceinline__ void run(float (&d)[128], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        TERN_R128
        " {%128,%129,%130,%131}, %132, 1, 1, 1, 1;\n"
        : TERN_D16(0), TERN_D16(16), TERN_D16(32), TERN_D16(48), TERN_D16(64), TERN_D16(80), TERN_D16(96), TERN_D16(112)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
  }
};

// The same with `a` in shared memory, as in wgmma.cuh.
struct WgmmaColumns256 {
  static __device__ __forceinline__ void run(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        TERN_R128
        " %128, %129, 1, 1, 1, 0, 1;\n"
        : TERN_D16(0), TERN_D16(16), TERN_D16(32), TERN_D16(48), TERN_D16(64), TERN_D16(80), TERN_D16(96), TERN_D16(112)
        : "l"(a), "l"(b));
  }
};

#undef TERN_D16
#undef TERN_R128
#undef TERN_D4
// clang-format on

}  // namespace tern::cuda::hopper
