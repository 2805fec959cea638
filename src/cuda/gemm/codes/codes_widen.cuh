// From the codes of a weight to fragments of bfloat16 pairs (code_pairs.cuh).
#pragma once

#include "cuda/gemm/codes.h"
#include "cuda/ptx/code_pairs.cuh"

namespace tern::cuda {

// d = a b; mma() (ptx/mma.cuh) adds to it.
__device__ __forceinline__ void mma_first(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(TERN_EMULATED)
  d[0] = d[1] = d[2] = d[3] = 0;
  mma(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};\n"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
#endif
}

// Fragments of 16 rows by 32 columns for two steps of mma: what a lane has of them in memory (codes.h).
struct WideCodes {
  uint32_t a[2][4];
};

template <CodeKind kKind>
struct Widen;

template <>
struct Widen<CodeKind::kInt8> {
  static constexpr int kWords = 4;  // per lane and 32 columns
  static __device__ __forceinline__ WideCodes wide(const uint32_t (&w)[4]) {
    WideCodes v;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        v.a[s][i] = int8_pair(w[2 * s + i]);
        v.a[s][2 + i] = int8_pair(w[2 * s + i] >> 8);
      }
    }
    return v;
  }
};

template <>
struct Widen<CodeKind::kE4m3> {
  static constexpr int kWords = 4;
  static __device__ __forceinline__ WideCodes wide(const uint32_t (&w)[4]) {
    WideCodes v;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = w[2 * s + i];
        v.a[s][i] = e4m3_pair(word << 8, word << 4);
        v.a[s][2 + i] = e4m3_pair(word, word >> 4);
      }
    }
    return v;
  }
};

template <>
struct Widen<CodeKind::kInt4> {
  static constexpr int kWords = 2;
  // 128 + (code + 8), less 136.
  static __device__ __forceinline__ uint32_t pair(uint32_t w) {
    return fma_pairs(masked(w, 0x000f000fu, 0x43004300u), 0x3f803f80u, 0xc308c308u);
  }
  static __device__ __forceinline__ WideCodes wide(const uint32_t (&w)[2]) {
    WideCodes v;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        v.a[s][i] = pair(w[i] >> 8 * s);
        v.a[s][2 + i] = pair(w[i] >> (8 * s + 4));
      }
    }
    return v;
  }
};

// Less the zero points of rows r and r + 8 (pairs, negative): exact, within +-256.
__device__ __forceinline__ void subtract_zeros(WideCodes& v, uint32_t low, uint32_t high) {
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v.a[s][i] = fma_pairs(v.a[s][i], 0x3f803f80u, i % 2 == 0 ? low : high);
  }
}

// Scales of the group that column k is in; zero points 16 words behind them.
__device__ __forceinline__ const float* group_of(const CodeLayout& layout, const char* stripe, int k) {
  const int group = layout.group == 0 ? 0 : (k + layout.shift) / layout.group;
  return reinterpret_cast<const float*>(stripe + layout.code_bytes() + int64_t{group} * layout.group_bytes());
}
__device__ __forceinline__ uint32_t zero_of(const float* group, int row) {
  return __float_as_uint(group[kStripe + row]);
}

// One code of a stripe as a float, for kernels that take any type; code_at(): less its zero point.
__device__ __forceinline__ float plain_code(const CodeLayout& layout, const char* stripe, int row, int k) {
  const int block = k / kCodeBlock, part = k % kCodeBlock / 32, q = k % 8 / 2, e = k % 32 / 8 * 2 + k % 2;
  const int lane = row % 8 * 4 + q, half = row / 8;
  const char* at = stripe + int64_t{block} * layout.block_bytes() + lane * 16;
  if (layout.kind == CodeKind::kInt4) {
    const uint32_t w = *reinterpret_cast<const uint32_t*>(at + part * 8 + half * 4);
    return static_cast<float>(static_cast<int>(w >> (e % 2 * 16 + e / 2 * 4) & 15) - 8);
  }
  const int byte = e % 4 == 1 ? 2 : e % 4 == 2 ? 1 : e % 4;
  const auto code = static_cast<uint8_t>(at[part * 512 + e / 4 * 8 + half * 4 + byte]);
  if (layout.kind == CodeKind::kInt8) return static_cast<float>(static_cast<int8_t>(code));
  const uint32_t wide = (code & 0x80u) << 8 | (code & 0x7fu) << 4;
  return __uint_as_float(wide << 16) * 0x1p120f;
}

__device__ __forceinline__ float code_at(const CodeLayout& layout, const char* stripe, int row, int k) {
  const float code = plain_code(layout, stripe, row, k);
  // The upper half of the pair is the zero point's negative.
  return layout.zeros ? code + __uint_as_float(zero_of(group_of(layout, stripe, k), row) & 0xffff0000u) : code;
}

__device__ __forceinline__ float scale_at(const CodeLayout& layout, const char* stripe, int row, int k) {
  return group_of(layout, stripe, k)[row];
}

}  // namespace tern::cuda
