// Keys and values that are codes as bfloat16 pages, for prompts on Hopper: their products are so many that writing and
// reading the pages once costs little beside them, and the kernels of prompts stay as they are.
#include <algorithm>

#include "cuda/attention/attention_decode_range.cuh"
#include "cuda/attention/codes/kv_codes.cuh"
#include "cuda/attention/widened.h"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {
namespace {

constexpr int kWidenThreads = 256;

struct WidenArgs {
  AttentionArgs a;
  int first, heads;  // KV heads
  char* pages;
  int64_t page_stride;  // bytes
  int32_t* table;
  int64_t table_stride;
};

// Pages of row r; 0 where another kernel takes it.
__device__ __forceinline__ int pages_of(const AttentionArgs& a, int r) {
  const int queries = a.row_start[r + 1] - a.row_start[r];
  if (queries == 0 || (a.decode_plan != nullptr && decode_takes(a, queries))) return 0;
  return (a.context_len[r] + a.block_size - 1) / a.block_size;
}

// Sixteen codes of a key, times its scale.
template <KvCode kCode>
__device__ __forceinline__ void widen_key(const uint4& codes, float scale, const float* channel, bf* to) {
  const uint32_t w[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    Vec8 x;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint32_t even = even_codes<kCode>(w[2 * h + k]), odd = odd_codes<kCode>(w[2 * h + k]);
      x.v[4 * k] = __uint_as_float(even << 16) * scale, x.v[4 * k + 1] = __uint_as_float(odd << 16) * scale;
      x.v[4 * k + 2] = __uint_as_float(even & 0xffff0000u) * scale;
      x.v[4 * k + 3] = __uint_as_float(odd & 0xffff0000u) * scale;
    }
#pragma unroll
    for (int i = 0; channel != nullptr && i < 8; ++i) x.v[i] *= channel[8 * h + i];
    store8(to + 8 * h, x);
  }
}

// Four columns of four values, `stride` apart.
template <KvCode kCode>
__device__ __forceinline__ void widen_values(const uint4& codes, const float (&scale)[4], const float* channel, bf* to,
                                             int stride) {
  const uint32_t w[4] = {codes.x, codes.y, codes.z, codes.w};
  float v[4][4];
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    const float by = channel != nullptr ? channel[d] : 1.0f;
    const uint32_t even = even_codes<kCode>(w[d]), odd = odd_codes<kCode>(w[d]);
    v[0][d] = __uint_as_float(even << 16) * scale[0] * by, v[1][d] = __uint_as_float(odd << 16) * scale[1] * by;
    v[2][d] = __uint_as_float(even & 0xffff0000u) * scale[2] * by;
    v[3][d] = __uint_as_float(odd & 0xffff0000u) * scale[3] * by;
  }
#pragma unroll
  for (int t = 0; t < 4; ++t)
    *reinterpret_cast<uint2*>(to + t * stride) = make_uint2(pack2(v[t][0], v[t][1]), pack2(v[t][2], v[t][3]));
}

// A block per page and row; those beyond a row's context have nothing to do. What lies behind the context becomes zero.
template <KvCode kCode>
__global__ void __launch_bounds__(kWidenThreads) widen_pages_kernel(const WidenArgs w) {
  const AttentionArgs& a = w.a;
  let_next_start();
  wait_for_previous();
  const int r = blockIdx.y, page = blockIdx.x, lane = threadIdx.x & 31;
  if (page >= pages_of(a, r)) return;
  int number = 0;
  for (int q = lane; q < r; q += 32) number += pages_of(a, q);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) number += __shfl_xor_sync(0xffffffffu, number, d);
  number += page;
  if (threadIdx.x == 0) w.table[r * w.table_stride + page] = number;
  const char* block = a.cache + a.table[r * a.table_stride + page] * a.block_stride;
  bf* const to = reinterpret_cast<bf*>(w.pages + number * w.page_stride);
  const int end = a.context_len[r] - page * a.block_size;  // tokens of the page that are there
  const int keys = a.block_size * a.dk / 16, values = a.block_size * a.dv / 16, both = keys + values;
  for (int n = threadIdx.x; n < w.heads * both; n += kWidenThreads) {
    const int h = n / both, i = n % both, head = w.first + h;
    if (i < keys) {
      const int token = i / (a.dk / 16), c = i % (a.dk / 16) * 16;
      const float scale = token < end ? code_scales(a, block, head)[token] : 0.0f;
      const float* channel = a.k_channel == nullptr ? nullptr : a.k_channel + head * a.dk + c;
      const auto* from = code_keys(a, block, head) + int64_t{token} * a.dk + c;
      widen_key<kCode>(*reinterpret_cast<const uint4*>(from), scale, channel,
                       to + (int64_t{h} * a.block_size + token) * a.dk + c);
      continue;
    }
    const int quad = (i - keys) / (a.dv / 4), c = (i - keys) % (a.dv / 4) * 4;
    float scale[4];
#pragma unroll
    for (int t = 0; t < 4; ++t)
      scale[t] = 4 * quad + t < end ? code_scales(a, block, a.kv_heads + head)[4 * quad + t] : 0.0f;
    const float* channel = a.v_channel == nullptr ? nullptr : a.v_channel + head * a.dv + c;
    const auto* from = code_values(a, block, head) + (int64_t{quad} * a.dv + c) * 4;
    bf* const values_to = to + int64_t{w.heads} * a.block_size * a.dk;
    widen_values<kCode>(*reinterpret_cast<const uint4*>(from), scale, channel,
                        values_to + (int64_t{h} * a.block_size + 4 * quad) * a.dv + c, a.dv);
  }
}

}  // namespace

Status widen_pages(AttentionArgs& a, int first, int heads, device::Stream stream) {
  char* const room = reinterpret_cast<char*>(a.slots) + kWidenedFrom;
  const WidenArgs w{a,
                    first,
                    heads,
                    room + widened_table_bytes(a),
                    widened_bytes(a, heads),
                    reinterpret_cast<int32_t*>(room),
                    widened_pages(a)};
  const int64_t longest = (int64_t{a.max_context} + a.block_size - 1) / a.block_size;
  const dim3 grid(static_cast<unsigned>(std::max<int64_t>(1, std::min(longest, widened_pages(a)))),
                  static_cast<unsigned>(a.rows));
  const auto kernel = a.code == KvCode::kInt8 ? widen_pages_kernel<KvCode::kInt8> : widen_pages_kernel<KvCode::kE4m3>;
  TERN_RETURN_IF_ERROR(launch(stream, "widen_pages", {grid, kWidenThreads}, kernel, w));
  const int group = a.heads / a.kv_heads;
  const auto moved = [&](const void* p, int64_t step, bool f32) {
    return static_cast<const char*>(p) + int64_t{first} * group * step * (f32 ? 4 : 2);
  };
  a.q = moved(a.q, a.q_head, a.q_f32), a.out = const_cast<char*>(moved(a.out, a.out_head, a.out_f32));
  a.heads = heads * group, a.kv_heads = heads;
  a.code = KvCode::kNone, a.k_channel = a.v_channel = nullptr;
  a.cache = w.pages, a.block_stride = w.page_stride, a.table = w.table, a.table_stride = w.table_stride;
  return {};
}

}  // namespace tern::cuda
