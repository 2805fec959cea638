// Eight-bit codes to pairs of float16, exactly: on Hopper a byte is half a conversion, where bfloat16 takes two and
// more instructions (code_pairs.cuh).
#pragma once

#include <cstdint>

namespace tern::cuda::hopper {

// Bytes 0 and 1 of a word of codes, and bytes 2 and 3.
struct HalfPairs {
  uint32_t low, high;
};
__device__ __forceinline__ HalfPairs int8_halves(uint32_t w) {
  HalfPairs r;
  // 128 more than a code is the low byte of the float16 of 1024 + 128 more than it.
  const uint32_t shifted = w ^ 0x80808080u;
  asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(r.low) : "r"(__byte_perm(shifted, 0x64646464u, 0x4140)), "r"(0x64806480u));
  asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(r.high) : "r"(__byte_perm(shifted, 0x64646464u, 0x4342)), "r"(0x64806480u));
  return r;
}
__device__ __forceinline__ HalfPairs e4m3_halves(uint32_t w) {
  HalfPairs r;
  asm("{.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;}\n"
      : "=r"(r.low), "=r"(r.high)
      : "r"(w));
  return r;
}

__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// mma() of ptx/mma.cuh with float16.
__device__ __forceinline__ void mma_halves(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two to the power by which numbers up to `top` (not negative) are divided to be float16 with `kSpare` powers below the
// largest kept free of rounding: as numbers, and their logarithm. A top that is not finite stays what it is.
template <int kSpare>
struct HalfRange {
  float up, down, log2;
  __device__ __forceinline__ explicit HalfRange(uint32_t top_bits) {
    const int e = min(max(static_cast<int>(top_bits >> 23), 32), 222) - kSpare;
    up = __uint_as_float(static_cast<uint32_t>(e) << 23), down = __uint_as_float(static_cast<uint32_t>(254 - e) << 23);
    log2 = static_cast<float>(e - 127);
  }
};

}  // namespace tern::cuda::hopper
