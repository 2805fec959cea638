// Eight-bit codes to pairs of bfloat16, exactly, in registers: no conversion instructions, of which sm_80 has none for
// e4m3 and a multiprocessor does few at a time.
#pragma once

#include "cuda/ptx/mma.cuh"

namespace tern::cuda {

// Two products and sums of bfloat16, each rounded once; the smallest numbers are not cut off.
__device__ __forceinline__ uint32_t fma_pairs(uint32_t a, uint32_t b, uint32_t c) {
#if defined(TERN_EMULATED)
  return pack2(__builtin_fmaf(bfv(a, 0), bfv(b, 0), bfv(c, 0)), __builtin_fmaf(bfv(a, 1), bfv(b, 1), bfv(c, 1)));
#else
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
#endif
}

// w & mask | bits in one instruction: constants in registers, where the compiler would take two with one each.
__device__ __forceinline__ uint32_t masked(uint32_t w, uint32_t mask, uint32_t bits) {
#if defined(TERN_EMULATED)
  return (w & mask) | bits;
#else
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(d) : "r"(w), "r"(mask), "r"(bits));
  return d;
#endif
}

// int8, bytes 0 and 2 of `w`: 128 + the lower seven bits, less 128, or 256 where the sign is set.
__device__ __forceinline__ uint32_t int8_pair(uint32_t w) {
  return fma_pairs(masked(w, 0x007f007fu, 0x43004300u), 0x3f803f80u, masked(w, 0x00800080u, 0xc300c300u));
}

// e4m3: exponent and mantissa in the place of bfloat16's, whose bias is larger by 120.
__device__ __forceinline__ uint32_t e4m3_pair(uint32_t sign, uint32_t magnitude) {
  return fma_pairs(masked(sign, 0x80008000u, magnitude & 0x07f007f0u), 0x7b807b80u, 0x80008000u);
}

}  // namespace tern::cuda
