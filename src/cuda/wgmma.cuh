// Products of one warpgroup: d[64, N] (+)= a[64, 16] b[N, 16], both operands in shared memory, rows of 128 bytes in
// the 128-byte swizzle. Lane l of warp w holds rows 16 w + l/4 and + 8; d[4j], d[4j + 1] are columns 8j + 2 (l % 4) and
// the next of the first row, d[4j + 2], d[4j + 3] of the second.
#pragma once

#include <cstdint>

namespace tern::cuda::hopper {

// Rows of 64 bf16 values, groups of eight rows 1024 bytes apart; the tile begins at a multiple of 1024 bytes. Advancing
// by 16 values of k adds 2.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t shared) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) | ((shared & 0x3ffff) >> 4);
}

// Rows of 16 bf16 values in the 32-byte swizzle; the tile begins at a multiple of 256 bytes.
__device__ __forceinline__ uint64_t narrow_descriptor(uint32_t shared) {
  return (uint64_t{3} << 62) | (uint64_t{256 >> 4} << 32) | (uint64_t{1} << 16) | ((shared & 0x3ffff) >> 4);
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

// clang-format off
#define TERN_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TERN_D16(i) TERN_D4(i), TERN_D4(i + 4), TERN_D4(i + 8), TERN_D4(i + 12)

template <>
struct Wgmma<8> {
  static __device__ __forceinline__ void run(float (&d)[4], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3},"
        " %4, %5, p, 1, 1, 0, 0;}\n"
        : TERN_D4(0)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  }
};

template <>
struct Wgmma<16> {
  static __device__ __forceinline__ void run(float (&d)[8], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7},"
        " %8, %9, p, 1, 1, 0, 0;}\n"
        : TERN_D4(0), TERN_D4(4)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  }
};

template <>
struct Wgmma<32> {
  static __device__ __forceinline__ void run(float (&d)[16], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
        " %16, %17, p, 1, 1, 0, 0;}\n"
        : TERN_D16(0)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  }
};

template <>
struct Wgmma<64> {
  static __device__ __forceinline__ void run(float (&d)[32], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        " %32, %33, p, 1, 1, 0, 0;}\n"
        : TERN_D16(0), TERN_D16(16)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  }
};

template <>
struct Wgmma<128> {
  static __device__ __forceinline__ void run(float (&d)[64], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
        " %64, %65, p, 1, 1, 0, 0;}\n"
        : TERN_D16(0), TERN_D16(16), TERN_D16(32), TERN_D16(48)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  }
};

template <>
struct Wgmma<256> {
  static __device__ __forceinline__ void run(float (&d)[128], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"
        " %128, %129, p, 1, 1, 0, 0;}\n"
        : TERN_D16(0), TERN_D16(16), TERN_D16(32), TERN_D16(48), TERN_D16(64), TERN_D16(80), TERN_D16(96), TERN_D16(112)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  }
};

#undef TERN_D16
#undef TERN_D4
// clang-format on

}  // namespace tern::cuda::hopper
