// Products of bfloat16 rows with few float32 weight rows (routers of experts, gates) on tensor cores: a float32 value
// is the sum of three bfloat16 values, and every product with one of those is exact.
#include "cuda/gemm.h"
#include "cuda/launch.cuh"
#include "cuda/mma.cuh"

namespace tern::cuda {
namespace {

constexpr int kWeightRows = 16, kTokens = 32, kWarps = 16, kThreads = 32 * kWarps, kPieces = kTokens / 8;
constexpr int kSteps = 4;  // of k that are on their way together

struct Split {
  uint32_t high, middle, low;  // two values each
};

__device__ __forceinline__ Split split(float2 v) {
  const float hx = rounded<bf>(v.x), hy = rounded<bf>(v.y);
  const float mx = rounded<bf>(v.x - hx), my = rounded<bf>(v.y - hy);
  return {pack2(hx, hy), pack2(mx, my), pack2(v.x - hx - mx, v.y - hy - my)};
}

// 16 weight rows times 32 tokens per block. k is dealt out to the warps in runs of 16; their sums are added in order:
// the same for every number of tokens.
__global__ void __launch_bounds__(kThreads) mixed_kernel(const Gemm g, const float* w) {
  __shared__ float parts[kWarps][kWeightRows][kTokens + 1];
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, row = lane / 4, pair = lane % 4 * 2;
  const int64_t n0 = int64_t{blockIdx.x} * kWeightRows, t0 = int64_t{blockIdx.y} * kTokens;
  const bf* x = static_cast<const bf*>(g.x);
  const auto weight = [&](int r, int64_t k) {
    return n0 + r < g.n && k < g.k ? *reinterpret_cast<const float2*>(w + (n0 + r) * g.w_row + k) : make_float2(0, 0);
  };
  const auto token = [&](int64_t t, int64_t k) {
    return t < g.rows && k < g.k ? *reinterpret_cast<const uint32_t*>(x + t * g.x_row + k) : 0u;
  };
  wait_for_previous();
  float acc[kPieces][4] = {};
  for (int64_t k0 = warp * 16 + pair; k0 < (g.k + 15) / 16 * 16; k0 += kSteps * kWarps * 16) {
    float2 w4[kSteps][4];
    uint32_t x2[kSteps][kPieces][2];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int64_t k = k0 + s * kWarps * 16;
#pragma unroll
      for (int i = 0; i < 4; ++i) w4[s][i] = weight(row + i % 2 * 8, k + i / 2 * 8);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        x2[s][p][0] = token(t0 + p * 8 + row, k), x2[s][p][1] = token(t0 + p * 8 + row, k + 8);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t high[4], middle[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Split v = split(w4[s][i]);
        high[i] = v.high, middle[i] = v.middle, low[i] = v.low;
      }
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        mma(acc[p], low, x2[s][p]);
        mma(acc[p], middle, x2[s][p]);
        mma(acc[p], high, x2[s][p]);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
#pragma unroll
    for (int v = 0; v < 4; ++v) parts[warp][row + v / 2 * 8][p * 8 + pair + v % 2] = acc[p][v];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kWeightRows * kTokens; i += kThreads) {
    const int r = i % kWeightRows, t = i / kWeightRows;
    if (t0 + t >= g.rows || n0 + r >= g.n) continue;
    float sum = parts[0][r][t];
#pragma unroll
    for (int s = 1; s < kWarps; ++s) sum += parts[s][r][t];
    if (g.bias != nullptr) sum += g.bias[n0 + r];
    const int64_t offset = (t0 + t) * g.out_row + n0 + r;
    if (g.out_bf16) {
      static_cast<bf*>(g.out)[offset] = from_float<bf>(sum);
    } else {
      static_cast<float*>(g.out)[offset] = sum;
    }
  }
}

}  // namespace

bool mixed_fits(const Gemm& g) {
  return g.x_bf16 && !g.w_bf16 && g.groups == 1 && g.k % 8 == 0 && g.x_row % 2 == 0 &&
         reinterpret_cast<uintptr_t>(g.x) % 4 == 0 && g.rows <= 65535 * int64_t{kTokens};
}

Status gemm_mixed(const Gemm& g, const void* weight, device::Stream stream) {
  const dim3 grid(static_cast<unsigned>(blocks_for(g.n, kWeightRows)),
                  static_cast<unsigned>(blocks_for(g.rows, kTokens)));
  return launch(stream, "gemm_mixed", {grid, kThreads}, mixed_kernel, g, static_cast<const float*>(weight));
}

}  // namespace tern::cuda
