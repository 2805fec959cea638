// A norm done by the products before and behind it (norm_fusion.h): what their kernels share. As a product is linear in
// its rows, the scale of a row can come last. The order of all sums is fixed.
#pragma once

#include "cuda/gemm/gemm_args.h"
#include "cuda/ptx/kernel_util.cuh"

namespace tern::cuda {

// Brings the weight of a column into the second-level cache; weights may be read before the launch before has ended.
__device__ __forceinline__ void bring_norm_weight(const NormAfter& a, int64_t col) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(static_cast<const char*>(a.weight) + col * (a.weight_bf16 ? 2 : 4)));
#endif
}

__device__ __forceinline__ float norm_weight(const NormAfter& a, int64_t col) {
  return a.weight_bf16 ? as_float(static_cast<const bf*>(a.weight)[col]) : static_cast<const float*>(a.weight)[col];
}

__device__ __forceinline__ float4 norm_weight_four(const NormAfter& a, int64_t col) {
  if (!a.weight_bf16) return *reinterpret_cast<const float4*>(static_cast<const float*>(a.weight) + col);
  return unpack_four(*reinterpret_cast<const uint2*>(static_cast<const bf*>(a.weight) + col));
}

// Value [token][col] of out.
__device__ __forceinline__ void store_one(const Gemm& g, int64_t token, int64_t col, float v) {
  const int64_t offset = token * g.out_row + col;
  if (g.out_bf16) {
    static_cast<bf*>(g.out)[offset] = from_float<bf>(v);
  } else {
    static_cast<float*>(g.out)[offset] = v;
  }
}

// The same with bias and gate, if it is there: out has n columns; `up` is read with a gate.
__device__ __forceinline__ void store_register_resident(const Gemm& g, int64_t n, int64_t token, int64_t col, float v,
                                                        float up) {
  if (token >= g.rows || col >= n) return;
  if (g.bias != nullptr) v += g.bias[col];
  if (g.gated) v = silu(v) * (g.bias == nullptr ? up : up + g.bias[n + col]);
  store_one(g, token, col, v);
}

// Leaves value [token][col], whose sum is v; gives its square.
__device__ __forceinline__ float epilogue_normed(const NormAfter& a, int64_t token, int64_t col, float v,
                                                 float residual, float weight) {
  v += residual;
  a.residual[token * a.residual_row + col] = v;
  static_cast<bf*>(a.x)[token * a.x_row + col] = from_float<bf>(v * weight);
  return v * v;
}

// What a lane adds to its values of two tokens and two columns, 8 apart: a quad of the accumulators of tensor cores,
// where lane / 4 is the first column and lane % 4 * 2 the first token. All lanes of a warp, which has 16 columns.
struct NormQuad {
  float residual[2][2];  // [token][column]
  __device__ __forceinline__ void load(const Gemm& g, int64_t token, int64_t col) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const float* from = g.after.residual + (token + t) * g.after.residual_row + col;
      residual[t][0] = token + t < g.rows ? from[0] : 0.0f, residual[t][1] = token + t < g.rows ? from[8] : 0.0f;
    }
  }
  // `sum`: of token and column (0, 0), (1, 0), (0, 1), (1, 1). Leaves a sum of squares of the 16 columns.
  __device__ __forceinline__ void epilogue(const Gemm& g, int64_t token, int64_t col, const float2& weight,
                                           const float4& sum) const {
    const float v[2][2] = {{sum.x, sum.z}, {sum.y, sum.w}};
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const bool there = token + t < g.rows;
      float square = 0.0f;
      if (there) {
        square = epilogue_normed(g.after, token + t, col, v[t][0], residual[t][0], weight.x);
        square += epilogue_normed(g.after, token + t, col + 8, v[t][1], residual[t][1], weight.y);
      }
#pragma unroll
      for (int d = 4; d < 32; d *= 2) square += __shfl_xor_sync(0xffffffffu, square, d);
      if (there && (threadIdx.x & 31) < 4) g.after.squares[(token + t) * g.after.parts + col / 16] = square;
    }
  }
};

__device__ __forceinline__ float norm_scale(const NormBefore& b, float squares, int64_t width) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + b.eps);
}

// Scales of a block's tokens: `own` of them, a power of two, of which number u is token row0 + token(u) and goes to
// scales[token(u)]; zero where there is no such token. By `threads` threads, a power of two, at least 32 and no fewer
// than `own`.
// Up to 4 * kAhead sums of squares of a thread are on their way between begin() and end(), behind which a barrier must
// follow.
template <int kAhead>
struct NormScales {
  float4 ahead[kAhead];
  int lanes;  // of a token
  int at;     // the thread's token
  bool there, own;
  template <class Token>
  __device__ __forceinline__ void begin(const Gemm& g, int64_t row0, int count, int threads, Token&& token) {
    const int shift = min(5, __clz(count) - __clz(threads));  // a division would be waited for
    lanes = 1 << shift;
    const int u = static_cast<int>(threadIdx.x) >> shift;
    own = u < count, at = token(own ? u : 0), there = own && row0 + at < g.rows;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int p = lane() + i * lanes;
      ahead[i] = there && p < g.before.parts / 4 ? from(g, row0)[p] : make_float4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void end(const Gemm& g, int64_t row0, float* scales) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum += (ahead[i].x + ahead[i].y) + (ahead[i].z + ahead[i].w);
    if (there) {
#pragma unroll 4
      for (int p = lane() + kAhead * lanes; p < g.before.parts / 4; p += lanes) {
        const float4 v = from(g, row0)[p];
        sum += (v.x + v.y) + (v.z + v.w);
      }
    }
    for (int d = 1; d < lanes; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (own && lane() == 0) scales[at] = there ? norm_scale(g.before, sum, g.k) : 0.0f;
  }

 private:
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) & (lanes - 1); }
  __device__ __forceinline__ const float4* from(const Gemm& g, int64_t row0) const {
    return reinterpret_cast<const float4*>(g.before.squares + (row0 + at) * g.before.parts);
  }
};

}  // namespace tern::cuda
