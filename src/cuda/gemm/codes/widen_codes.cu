// For products of many rows: codes as rows of bfloat16 in memory, for kernels that know no codes; and the scales of
// rows on what those make of codes alone.
#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/gemm/codes/codes_widen.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Eight neighbouring values of row r (`i` 0) or r + 8 (1): a lane has pairs that lie eight columns apart (codes.h), and
// four lanes trade them. All lanes.
__device__ __forceinline__ uint4 row_of(const WideCodes& v, int i, int q) {
  const uint4 own = make_uint4(v.a[0][i], v.a[0][2 + i], v.a[1][i], v.a[1][2 + i]);
  uint32_t all[4];
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, word_of(own, q ^ d), d);
#pragma unroll
    for (int j = 0; j < 4; ++j) all[j] = (q ^ d) == j ? got : d == 0 ? 0 : all[j];
  }
  return make_uint4(all[0], all[1], all[2], all[3]);
}

__device__ __forceinline__ uint4 times(const uint4& v, float scale) {
  Vec8 x = widen8(v);
#pragma unroll
  for (float& f : x.v) f *= scale;
  return make_uint4(pack2(x.v[0], x.v[1]), pack2(x.v[2], x.v[3]), pack2(x.v[4], x.v[5]), pack2(x.v[6], x.v[7]));
}

// A warp per 16 rows and 32 columns.
template <CodeKind kKind, bool kScaled>
__global__ void widen_kernel(const CodeLayout layout, const char* w, int64_t begin, bf* out, int64_t row) {
  let_next_start();
  wait_for_previous();  // who reads what was here before is done
  const int lane = threadIdx.x & 31, r = lane / 4, q = lane % 4;
  const int part = static_cast<int>(blockIdx.x) * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int k = part * 32 + q * 8;
  if (part >= 2 * layout.blocks()) return;
  const char* stripe = w + (begin + blockIdx.y) * layout.stripe_bytes();
  const char* at = stripe + int64_t{part / 2} * layout.block_bytes() + lane * 16;
  WideCodes v;
  if constexpr (kKind == CodeKind::kInt4) {
    const uint2 c = *reinterpret_cast<const uint2*>(at + part % 2 * 8);
    v = Widen<kKind>::wide({c.x, c.y});
  } else {
    const uint4 c = *reinterpret_cast<const uint4*>(at + part % 2 * 512);
    v = Widen<kKind>::wide({c.x, c.y, c.z, c.w});
  }
  if (layout.zeros && part * 32 < layout.k) {
    const float* group = group_of(layout, stripe, part * 32);
    subtract_zeros(v, zero_of(group, r), zero_of(group, r + 8));
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint4 values = row_of(v, i, q);
    if (k >= row) continue;
    if constexpr (kScaled) values = times(values, k < layout.k ? scale_at(layout, stripe, r + 8 * i, k) : 0.0f);
    *reinterpret_cast<uint4*>(out + (int64_t{blockIdx.y} * kStripe + r + 8 * i) * row + k) = values;
  }
}

__global__ void scale_columns_kernel(const CodeLayout layout, const char* w, int64_t begin, const float* bias,
                                     float* out, int64_t out_row, int n) {
  let_next_start();
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= n) return;
  const char* stripe = w + (begin + c / kStripe) * layout.stripe_bytes();
  const float scale = scale_at(layout, stripe, c % kStripe, 0), add = bias != nullptr ? bias[c] : 0.0f;
  wait_for_previous();
  float* const at = out + int64_t{blockIdx.y} * out_row + c;
  *at = *at * scale + add;
}

template <CodeKind kKind>
Status launch_widen(const CodeLayout& layout, const void* weight, int64_t begin, int64_t end, bool scaled, int64_t row,
                    void* out, device::Stream stream) {
  const dim3 grid(static_cast<unsigned>(blocks_for(2 * layout.blocks(), kThreads / 32)),
                  static_cast<unsigned>(end - begin));
  const auto kernel = scaled ? widen_kernel<kKind, true> : widen_kernel<kKind, false>;
  return launch(stream, "widen_codes", {grid, kThreads}, kernel, layout, static_cast<const char*>(weight), begin,
                static_cast<bf*>(out), row);
}

}  // namespace

Status widen_codes(const CodeLayout& layout, const void* weight, int64_t begin, int64_t end, bool scaled, int64_t row,
                   void* out, device::Stream stream) {
  switch (layout.kind) {
    case CodeKind::kInt8:
      return launch_widen<CodeKind::kInt8>(layout, weight, begin, end, scaled, row, out, stream);
    case CodeKind::kInt4:
      return launch_widen<CodeKind::kInt4>(layout, weight, begin, end, scaled, row, out, stream);
    case CodeKind::kE4m3:
      break;
  }
  return launch_widen<CodeKind::kE4m3>(layout, weight, begin, end, scaled, row, out, stream);
}

Status scale_columns(const CodeLayout& layout, const void* weight, int64_t begin, const float* bias, float* out,
                     int64_t out_row, int64_t rows, int64_t n, device::Stream stream) {
  const dim3 grid(static_cast<unsigned>(blocks_for(n, kThreads)), static_cast<unsigned>(rows));
  return launch(stream, "scale_columns", {grid, kThreads}, scale_columns_kernel, layout,
                static_cast<const char*>(weight), begin, bias, out, out_row, static_cast<int>(n));
}

}  // namespace tern::cuda
