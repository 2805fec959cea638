// What attention inside segments needs of q, k and v before they meet: q and k rotated, halves of a head against each
// other, in their places; or all three laid where the copy engine reads them best.
#include "cuda/attention/attention_prefill.h"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"

namespace tern::cuda {
namespace {

constexpr int kTokens = 4;  // of a block: their loads are under way together
constexpr int kMostThreads = 512;

struct Heads {
  bf* data[3];
  int64_t token[3], head[3];  // elements
};

// Rows of 64 values [part][head][token], and rows of the rest.
struct Apart {
  bf *main, *tail;
  int rest;
  __device__ __forceinline__ bf* at(int64_t row, int value) const {
    return value < 64 ? main + row * 64 + value : tail + row * rest + value - 64;
  }
};

__device__ __forceinline__ uint2 narrow4(float a, float b, float c, float d) {
  return make_uint2(pack2(a, b), pack2(c, d));
}

// A thread has four pairs of one head of one part, for all the block's tokens.
template <bool kApart>
__global__ void __launch_bounds__(kMostThreads) rotate_kernel(const Heads x, const SegmentRotation rotation,
                                                              int64_t tokens, int heads, int half, const Apart apart) {
  let_next_start();
  wait_for_previous();
  const int fours = half / 4, item = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int row = item / fours, at = item % fours * 4;
  if (row >= (kApart ? 3 : 2) * heads) return;
  const int part = row < heads ? 0 : row < 2 * heads ? 1 : 2, head = row - part * heads;
  bf* const data = part == 0 ? x.data[0] : part == 1 ? x.data[1] : x.data[2];
  const int64_t stride = part == 0 ? x.token[0] : part == 1 ? x.token[1] : x.token[2];
  const int64_t head_stride = part == 0 ? x.head[0] : part == 1 ? x.head[1] : x.head[2];
  const bool turns = part < 2 && rotation.cos != nullptr;
  const int64_t first = int64_t{blockIdx.x} * kTokens;
  bf* const from = data + head * head_stride + first * stride + at;
  uint2 low[kTokens], high[kTokens];
  float4 cos[kTokens], sin[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if (first + i >= tokens) break;
    low[i] = *reinterpret_cast<const uint2*>(from + i * stride);
    high[i] = *reinterpret_cast<const uint2*>(from + i * stride + half);
    if (!turns) continue;
    cos[i] = *reinterpret_cast<const float4*>(rotation.cos + (first + i) * rotation.cos_row + at);
    sin[i] = *reinterpret_cast<const float4*>(rotation.sin + (first + i) * rotation.sin_row + at);
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if (first + i >= tokens) break;
    if (turns) {
      const float4 a = unpack_four(low[i]), b = unpack_four(high[i]), c = cos[i], s = sin[i];
      low[i] = narrow4(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y, a.z * c.z - b.z * s.z, a.w * c.w - b.w * s.w);
      high[i] = narrow4(b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y, b.z * c.z + a.z * s.z, b.w * c.w + a.w * s.w);
    }
    const int64_t to = int64_t{row} * tokens + first + i;
    *reinterpret_cast<uint2*>(kApart ? apart.at(to, at) : from + i * stride) = low[i];
    *reinterpret_cast<uint2*>(kApart ? apart.at(to, at + half) : from + i * stride + half) = high[i];
  }
}

template <bool kApart>
Status launch_rotate(const AttentionArgs& a, const SegmentRotation& r, int64_t tokens, const Apart& apart,
                     device::Stream stream) {
  Heads x{{static_cast<bf*>(const_cast<void*>(a.q)), static_cast<bf*>(const_cast<void*>(a.k)),
           static_cast<bf*>(const_cast<void*>(a.v))},
          {a.q_token, a.k_token, a.v_token},
          {a.q_head, a.k_head, a.v_head}};
  const int items = (kApart ? 3 : 2) * a.heads * (a.dk / 8), parts = (items + kMostThreads - 1) / kMostThreads;
  const int threads = ((items + parts - 1) / parts + 31) / 32 * 32;
  const Shape shape{dim3(static_cast<unsigned>(blocks_for(tokens, kTokens)), static_cast<unsigned>(parts)),
                    static_cast<unsigned>(threads)};
  return launch(stream, kApart ? "lay_apart" : "rotate", shape, rotate_kernel<kApart>, x, r, tokens, a.heads, a.dk / 2,
                apart);
}

bool eights(const void* data, int64_t token, int64_t head) {
  return reinterpret_cast<uintptr_t>(data) % 8 == 0 && token % 4 == 0 && head % 4 == 0;
}
bool sixteens(const float* data, int64_t row) { return reinterpret_cast<uintptr_t>(data) % 16 == 0 && row % 4 == 0; }

}  // namespace

bool rotate_fits(const AttentionArgs& a, const SegmentRotation& r) {
  return !a.q_f32 && !a.kv_f32 && a.dk % 8 == 0 && eights(a.q, a.q_token, a.q_head) &&
         eights(a.k, a.k_token, a.k_head) && eights(a.v, a.v_token, a.v_head) &&
         (r.cos == nullptr || (sixteens(r.cos, r.cos_row) && sixteens(r.sin, r.sin_row)));
}

Status rotate(const AttentionArgs& a, const SegmentRotation& r, int64_t tokens, device::Stream stream) {
  return launch_rotate<false>(a, r, tokens, {}, stream);
}

size_t apart_bytes(int64_t tokens, int heads, int dim) {
  return dim <= 64 || dim > 80 ? 0 : static_cast<size_t>(3 * tokens * heads * dim) * sizeof(bf) + 128;
}

Status lay_apart(AttentionArgs& a, const SegmentRotation& r, int64_t tokens, void* to, SegmentTails* tails,
                 device::Stream stream) {
  const int64_t rows = tokens * a.heads;
  const int rest = a.dk - 64;
  bf* const main = reinterpret_cast<bf*>((reinterpret_cast<uintptr_t>(to) + 127) / 128 * 128);
  bf* const tail = main + 3 * rows * 64;
  if (Status s = launch_rotate<true>(a, r, tokens, {main, tail, rest}, stream); !s.ok()) return s;
  a.q = main, a.k = main + rows * 64, a.v = main + 2 * rows * 64;
  a.q_token = a.k_token = a.v_token = 64;
  a.q_head = a.k_head = a.v_head = tokens * 64;
  *tails = {tail, tail + rows * rest, tail + 2 * rows * rest};
  return {};
}

}  // namespace tern::cuda
