// The pass between the QKV projection and attention where keys and values become codes: the bytes that the CPU's side
// makes of the same values (ops/cpu/kv_write_cpu.cc).
#include "cuda/attention/qkv/qkv_any_head.cuh"
#include "cuda/ptx/launch.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kWarps = 4;

struct CodeArgs {
  bool e4m3;
  float bound;
  int64_t scales;  // bytes from a block to its scales
  KvScales known;
};

// To the nearest whole number, ties to even, for magnitudes below 2^22: whole numbers are 1.5 * 2^23's neighbours.
__device__ __forceinline__ int nearest(float v) {
  return static_cast<int>(__fadd_rn(__fadd_rn(v, 12582912.0f), -12582912.0f));
}
// To the nearest, ties to even; within +-bound but for NaN, which does not come here.
__device__ __forceinline__ uint8_t int8_code(float v) {
  return static_cast<uint8_t>(static_cast<int8_t>(nearest(fminf(fmaxf(v, -127.0f), 127.0f))));
}
__device__ __forceinline__ uint8_t e4m3_code(float v) {
  const uint32_t sign = __float_as_uint(v) >> 24 & 0x80u;
  const float a = fminf(fabsf(v), 448.0f);
  if (a < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint32_t>(nearest(a * 0x1p9f)));
  uint32_t u = __float_as_uint(a);
  u += 0x7ffffu + (u >> 20 & 1);
  return static_cast<uint8_t>(sign | ((u >> 20) - ((127 - 7) << 3)));
}

// Codes of one head of keys or values, and their scale.
__device__ __forceinline__ void write_codes(const QkvArgs& a, const CodeArgs& c, const float* v, int64_t slot,
                                            int part) {
  const int lane = threadIdx.x & 31;
  const bool key = part < a.kv_heads;
  const int h = key ? part : part - a.kv_heads;
  char* block = a.cache + slot / a.block_size * a.block_stride;
  const int at = static_cast<int>(slot % a.block_size);
  auto* head = reinterpret_cast<uint8_t*>(block) + int64_t{part} * a.block_size * a.dim;
  float top = 0.0f;
  bool finite = true;
  for (int i = lane; i < a.dim; i += 32) {
    const float x = fabsf(v[i]);
    finite = finite && x < INFINITY;
    top = fmaxf(top, x);
  }
  finite = __ballot_sync(0xffffffffu, finite) == 0xffffffffu;
  float scale = __fdiv_rn(warp_max(top), c.bound);
  const float* known = key ? c.known.k : c.known.v;
  const float* channels = known != nullptr && c.known.channels ? known + h * a.dim : nullptr;
  if (known != nullptr) scale = channels != nullptr ? 1.0f : known[h];
  const auto code = [&](int i) -> uint8_t {
    if (!finite || scale == 0.0f) return 0;
    const float x = __fdiv_rn(v[i], channels != nullptr ? channels[i] : scale);
    return c.e4m3 ? e4m3_code(x) : int8_code(x);
  };
  if (key) {
    for (int i = 4 * lane; i < a.dim; i += 128) {
      const uint32_t word =
          code(i) | uint32_t{code(i + 1)} << 8 | uint32_t{code(i + 2)} << 16 | uint32_t{code(i + 3)} << 24;
      *reinterpret_cast<uint32_t*>(head + int64_t{at} * a.dim + i) = word;
    }
  } else {
    // Other tokens of the four may be written at the same time.
    for (int i = lane; i < a.dim; i += 32) head[(int64_t{at / 4} * a.dim + i) * 4 + at % 4] = code(i);
  }
  if (lane == 0) {
    reinterpret_cast<float*>(block + c.scales)[int64_t{part} * a.block_size + at] =
        finite ? scale : __uint_as_float(0x7fc00000u);
  }
}

// A warp per head. T: of qkv, Q: of the queries' own place. Shared memory: a head per warp.
template <class T, class Q>
__global__ void __launch_bounds__(32 * kWarps) qkv_codes_kernel(const T* qkv, const QkvArgs a, const CodeArgs c) {
  extern __shared__ float shared[];
  let_next_start();
  wait_for_previous();
  const HeadOfWarp mine(a);
  const int64_t t = mine.token;
  const int h = mine.head, lane = threadIdx.x & 31;
  if (t >= a.tokens) return;
  const int64_t slot = h < a.heads ? 0 : a.slots[t];
  if (h >= a.heads && slot < a.block_size) return;  // the null block: padding rows
  float* v = shared + threadIdx.x / 32 * a.dim;
  bring_head(qkv, a, t, h, v);
  if (h >= a.heads) return write_codes(a, c, v, slot, h - a.heads);
  Q* to = static_cast<Q*>(a.q) + t * a.q_row + h * a.dim;
  for (int i = lane; i < a.dim; i += 32) to[i] = from_float<Q>(v[i]);
}

}  // namespace

Status qkv_codes(const ops::QkvPrepareParams& p, const QkvArgs& a, device::Stream stream) {
  const KvSpec& s = p.cache.spec;
  TERN_OP_CHECK("qkv_prepare", a.dim <= 3072, "a head is longer than shared memory");
  const CodeArgs c{s.dtype == DType::kF8E4M3, s.code_bound(), static_cast<int64_t>(s.scales_offset()), p.cache.scales};
  const int64_t warps = a.tokens * (a.heads + 2 * a.kv_heads);
  const Shape shape{static_cast<unsigned>(blocks_for(warps, kWarps)), 32 * kWarps,
                    static_cast<size_t>(a.dim) * kWarps * sizeof(float)};
  return with_type(p.qkv.dtype, [&]<class T>() {
    return with_type(p.q.dtype, [&]<class Q>() {
      return launch(stream, "qkv_prepare_codes", shape, qkv_codes_kernel<T, Q>, p.qkv.as<const T>(), a, c);
    });
  });
}

}  // namespace tern::cuda
