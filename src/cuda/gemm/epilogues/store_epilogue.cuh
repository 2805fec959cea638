// How sums of wgmma, whose tall side are rows of the weight, leave as rows of tokens.
#pragma once

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/kernel_util.cuh"

namespace tern::cuda {

constexpr int kStaging = 16 * 20 * 4;  // bytes of shared memory of a warp for results on their way out

// How results leave: `Out` values, with a gate 8 columns of a warp, else 16. kExact: the gate's bits are those of other
// kernels.
template <class Out_, bool kGated_, bool kExact_>
struct WideOut {
  using Out = Out_;
  static constexpr bool kGated = kGated_;
  [[maybe_unused]] static constexpr bool kExact = kExact_;
  static constexpr int kColumns = kGated ? 8 : 16, kWords = kColumns * static_cast<int>(sizeof(Out)) / 16;
  static constexpr int kPitch = sizeof(Out) == 4 ? 20 : kGated ? 16 : 24;  // of a token, in values
  static constexpr int kPiece = kGated ? 32 : 16;                          // tokens that leave together
  static_assert(kPiece * kPitch * sizeof(Out) <= kStaging);
};

template <class To>
__device__ __forceinline__ float gated_value(float gate, float up) {
  if constexpr (To::kExact) return silu(gate) * up;
  return __fdividef(gate * up, 1.0f + __expf(-gate));
}

// Values of two tokens. bfloat16: rounded together.
template <int kPitch>
__device__ __forceinline__ void put_two(float* at, float a, float b) {
  at[0] = a, at[kPitch] = b;
}
template <int kPitch>
__device__ __forceinline__ void put_two(bf* at, float a, float b) {
  const uint32_t two = pack2(a, b);
  auto* to = reinterpret_cast<uint16_t*>(at);
  to[0] = static_cast<uint16_t>(two), to[kPitch] = static_cast<uint16_t>(two >> 16);
}

// A warp's results of 16 rows of the weight, turned around in its own shared memory.
template <int kN, class To>
__device__ __forceinline__ void epilogue(const Gemm& g, int row0, int count, int col, const float (&acc)[kN / 2],
                                         char* staging) {
  using Out = typename To::Out;
  constexpr int kPitch = To::kPitch, kWords = To::kWords, kPiece = To::kPiece, kEach = 16 / sizeof(Out);
  const int lane = threadIdx.x & 31;
  Out* const to = reinterpret_cast<Out*>(staging) + lane % 4 * 2 * kPitch + lane / 4;
  const Out* const from = reinterpret_cast<const Out*>(staging) + lane / kWords * kPitch + lane % kWords * kEach;
  const bool inside = col < (To::kGated ? g.n / 2 : g.n);
  Out* const out = static_cast<Out*>(g.out) + (row0 + lane / kWords) * g.out_row + col + lane % kWords * kEach;
#pragma unroll
  for (int p = 0; p < (kN + kPiece - 1) / kPiece; ++p) {
    if (p * kPiece >= count) continue;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPiece / 8; ++i) {
      const int j = 4 * (p * (kPiece / 8) + i);
      if (j >= kN / 2) continue;
      Out* const at = to + i * 8 * kPitch;
      if constexpr (To::kGated) {
        put_two<kPitch>(at, gated_value<To>(acc[j], acc[j + 2]), gated_value<To>(acc[j + 1], acc[j + 3]));
      } else {
        put_two<kPitch>(at, acc[j], acc[j + 1]), put_two<kPitch>(at + 8, acc[j + 2], acc[j + 3]);
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < (kPiece * kWords + 31) / 32; ++i) {
      const int token = i * (32 / kWords);
      if (inside && p * kPiece + token + lane / kWords < count && token + lane / kWords < kPiece) {
        *reinterpret_cast<uint4*>(out + (p * kPiece + token) * g.out_row) =
            *reinterpret_cast<const uint4*>(from + token * kPitch);
      }
    }
  }
}

}  // namespace tern::cuda
