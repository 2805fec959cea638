// The pass between the QKV projection and attention for bfloat16 products of many rows, whose time is that of memory.
#include "cuda/attention/qkv/qkv_args.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {
namespace {

__device__ __forceinline__ Vec8 norm_weights(const QkvArgs& a, const void* w, int i) {
  return a.norm_bf16 ? load8(static_cast<const bf*>(w) + i) : load8(static_cast<const float*>(w) + i);
}

// Eight pairs: values of both halves, or next to each other in the sixteen.
template <bool kInterleaved>
__device__ __forceinline__ void turn(Vec8 (&v)[2], const Vec8& c, const Vec8& s) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    float& x = kInterleaved ? v[j / 4].v[2 * j % 8] : v[0].v[j];
    float& y = kInterleaved ? v[j / 4].v[2 * j % 8 + 1] : v[1].v[j];
    const float a = x, b = y;
    x = a * c.v[j] - b * s.v[j];
    y = b * c.v[j] + a * s.v[j];
  }
}

// To bfloat16 and back: two at a time need one conversion.
__device__ __forceinline__ void round_pair(float& a, float& b) {
  const uint32_t two = pack2(a, b);
  a = __uint_as_float(two << 16), b = __uint_as_float(two & 0xffff0000u);
}

constexpr int kWideThreads = 256, kWideHeads = 2;

// A thread has eight values of each half of a head (or sixteen neighbours), kDim / 16 threads a head, and kWideHeads
// heads of one token, whose loads are all on their way together and stay as they came until it is their turn. A group's
// heads lie `groups` apart, so that neighbouring groups read neighbouring heads.
template <int kDim, bool kInterleaved>
__global__ void __launch_bounds__(kWideThreads, 3) qkv_wide_kernel(const bf* qkv, const QkvArgs a, int groups) {
  constexpr int kThreadsEach = kDim / 16, kSecond = kInterleaved ? 8 : kDim / 2;
  const int all = a.heads + 2 * a.kv_heads, lane = threadIdx.x % kThreadsEach;
  const unsigned at = blockIdx.x * (kWideThreads / kThreadsEach) + threadIdx.x / kThreadsEach;
  const int64_t t = at / static_cast<unsigned>(groups);
  const int first = static_cast<int>(at % static_cast<unsigned>(groups)), from = lane * (kInterleaved ? 16 : 8);
  let_next_start();
  wait_for_previous();
  const bool there = t < a.tokens;
  uint4 loaded[kWideHeads][2] = {};
#pragma unroll
  for (int i = 0; i < kWideHeads; ++i) {
    const int h = first + i * groups;
    if (!there || h >= all) continue;
    const bf* head = qkv + t * a.row + h * kDim + from;
    loaded[i][0] = *reinterpret_cast<const uint4*>(head);
    loaded[i][1] = *reinterpret_cast<const uint4*>(head + kSecond);
  }
  Vec8 c = {}, s = {};
  if (there && a.cos != nullptr)
    c = load8(a.cos + t * a.cos_row + lane * 8), s = load8(a.sin + t * a.sin_row + lane * 8);
  bf* first_kv = there ? a.cached<bf>(t) : nullptr;  // the division once for all heads
#pragma unroll
  for (int i = 0; i < kWideHeads; ++i) {
    const int h = first + i * groups;
    const bool mine = there && h < all;
    const void* norm = !mine ? nullptr : h < a.heads ? a.q_norm : h < a.heads + a.kv_heads ? a.k_norm : nullptr;
    Vec8 v[2] = {widen8(loaded[i][0]), widen8(loaded[i][1])};
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 16; ++j) sum += v[j / 8].v[j % 8] * v[j / 8].v[j % 8];
#pragma unroll
    for (int d = kThreadsEach / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    bf* to = mine ? a.place<bf>(t, h, first_kv) : nullptr;
    if (to == nullptr) continue;
    if (norm != nullptr) {
      const float r = 1.0f / sqrtf(sum / static_cast<float>(kDim) + a.eps);
      const Vec8 w[2] = {norm_weights(a, norm, from), norm_weights(a, norm, from + kSecond)};
#pragma unroll
      for (int j = 0; j < 16; j += 2) {
        float &x = v[j / 8].v[j % 8], &y = v[j / 8].v[j % 8 + 1];
        x *= r, y *= r;
        round_pair(x, y);
        x *= w[j / 8].v[j % 8], y *= w[j / 8].v[j % 8 + 1];
        round_pair(x, y);
      }
    }
    if (h < a.heads + a.kv_heads && a.cos != nullptr) turn<kInterleaved>(v, c, s);
    store8(to + from, v[0]);
    store8(to + from + kSecond, v[1]);
  }
}

}  // namespace

bool qkv_wide_fits(const ops::QkvPrepareParams& p, const QkvArgs& a) {
  const bool whole = a.cos == nullptr || 2 * a.half == a.dim;
  const auto aligned = [](const void* data, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && bytes % 16 == 0;
  };
  return p.qkv.dtype == DType::kBF16 && whole && (a.dim == 128 || a.dim == 64) && aligned(p.qkv.data, 2 * a.row) &&
         aligned(a.q, 2 * a.q_row) && aligned(a.cache, a.block_stride) && aligned(a.cos, 4 * a.cos_row) &&
         aligned(a.sin, 4 * a.sin_row) && aligned(a.q_norm, 0) && aligned(a.k_norm, 0);
}

Status qkv_wide(const ops::QkvPrepareParams& p, const QkvArgs& a, device::Stream stream) {
  const int groups = static_cast<int>(blocks_for(a.heads + 2 * a.kv_heads, kWideHeads));
  const Shape shape{static_cast<unsigned>(blocks_for(a.tokens * groups * (a.dim / 16), kWideThreads)), kWideThreads};
  const auto kernel = a.dim == 128    ? a.interleaved ? qkv_wide_kernel<128, true> : qkv_wide_kernel<128, false>
                         : a.interleaved ? qkv_wide_kernel<64, true>
                                      : qkv_wide_kernel<64, false>;
  return launch(stream, "qkv_prepare_wide", shape, kernel, p.qkv.as<const bf>(), a, groups);
}

}  // namespace tern::cuda
