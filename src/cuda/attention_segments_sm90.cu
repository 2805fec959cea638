// Segments of packed rows: pictures of a tower. Inputs in float32 are first rounded into the workspace, as the products
// would round them.
#include "cuda/attention_hopper.cuh"
#include "cuda/attention_prefill.h"

namespace tern::cuda {
namespace {

constexpr int kRoundThreads = 256;

// Rows begin at multiples of 32 bytes, the unit in which memory is read.
int padded(int dim) { return (dim + 15) / 16 * 16; }

struct Parts {
  const float* from[3];
  int64_t token[3], head[3];  // strides in elements
};

__device__ __forceinline__ void store4(bf* to, const float (&x)[4]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack2(x[0], x[1]), pack2(x[2], x[3]));
}

// Four values of each half of a head, turned.
__device__ __forceinline__ void turn(const float* from, const float* cos, const float* sin, int half, bf* to) {
  const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + half);
  const float4 c = *reinterpret_cast<const float4*>(cos), s = *reinterpret_cast<const float4*>(sin);
  store4(to, {a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y, a.z * c.z - b.z * s.z, a.w * c.w - b.w * s.w});
  store4(to + half, {b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y, b.z * c.z + a.z * s.z, b.w * c.w + a.w * s.w});
}

// [3, T, heads, dim] bf16 with `row_values` from head to head, eight values a thread.
__global__ void __launch_bounds__(kRoundThreads) round_parts_kernel(Parts parts, SegmentRotation rotation, int64_t rows,
                                                                    int heads, int dim, int row_values, bf* to) {
  let_next_start();
  wait_for_previous();
  const int chunks = dim / 8, part = blockIdx.y;
  const int64_t all = rows * heads * chunks;
  const float* from = part == 0 ? parts.from[0] : part == 1 ? parts.from[1] : parts.from[2];
  const int64_t token_stride = part == 0 ? parts.token[0] : part == 1 ? parts.token[1] : parts.token[2];
  const int64_t head_stride = part == 0 ? parts.head[0] : part == 1 ? parts.head[1] : parts.head[2];
  for (int64_t i = blockIdx.x * int64_t{kRoundThreads} + threadIdx.x; i < all;
       i += int64_t{kRoundThreads} * gridDim.x) {
    const int64_t row = i / chunks, token = row / heads;
    const int head = static_cast<int>(row % heads), at = static_cast<int>(i % chunks);
    const float* x = from + token * token_stride + head * head_stride;
    bf* y = to + (part * rows * heads + row) * row_values;
    if (part < 2 && rotation.cos != nullptr) {
      turn(x + 4 * at, rotation.cos + token * rotation.cos_row + 4 * at,
           rotation.sin + token * rotation.sin_row + 4 * at, dim / 2, y + 4 * at);
    } else {
      store8(y + 8 * at, load8(x + 8 * at));
    }
  }
}

Status round_parts(AttentionArgs& a, int64_t tokens, const SegmentRotation& rotation, bf* to, device::Stream stream) {
  const Parts parts{{static_cast<const float*>(a.q), static_cast<const float*>(a.k), static_cast<const float*>(a.v)},
                    {a.q_token, a.k_token, a.v_token},
                    {a.q_head, a.k_head, a.v_head}};
  const int row = padded(a.dk);
  const int64_t each = tokens * a.heads * row;
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(blocks_for(each / 8, kRoundThreads), int64_t{8} * state(stream).multiprocessors));
  if (Status s = launch(stream, "round_parts", {dim3(blocks, 3), kRoundThreads}, round_parts_kernel, parts, rotation,
                        tokens, a.heads, a.dk, row, to);
      !s.ok()) {
    return s;
  }
  a.q = to, a.k = to + each, a.v = to + 2 * each;
  a.q_token = a.k_token = a.v_token = int64_t{a.heads} * row;
  a.q_head = a.k_head = a.v_head = row;
  a.q_f32 = a.kv_f32 = false;
  return {};
}

using Shape64 = LongShape<64, 64, 3, 128, 4, 2>;
using Shape72 = LongShape<80, 72, 3, 128, 2, 2>;
using Shape80 = LongShape<80, 80, 2, 128, 2, 2>;  // three groups lack registers
using Shape128 = LongShape<128, 128, 2, 128, 2, 2>;

template <class C>
Status run(AttentionArgs a, int64_t tokens, device::Stream stream) {
  a.chunks = a.chunk_heads = 1;
  a.unit_tokens = C::kQueries;
  a.slot_capacity = a.split_below = 0;  // never split
  if (Status s = launch_plan(a, stream); !s.ok()) return s;
  LongMaps maps;
  const auto map = [&](const void* data, int64_t head, int64_t token, int box, CUtensorMap* out) {
    return tensor_map_heads(data, a.dk, a.heads, tokens, head, token, 1, box, out);
  };
  if (Status s = map(a.q, a.q_head, a.q_token, C::kQueries, &maps.q); !s.ok()) return s;
  if (Status s = map(a.k, a.k_head, a.k_token, C::kKeys, &maps.k); !s.ok()) return s;
  if (Status s = map(a.v, a.v_head, a.v_token, C::kKeys, &maps.v); !s.ok()) return s;
  return launch_long_rows<C, false>("attention_segments_sm90", a, maps, stream);
}

}  // namespace

bool segments_fit(const AttentionArgs& a, int64_t tokens, device::Stream stream) {
  const StreamState& s = state(stream);
  return s.arch >= 90 && !s.deterministic && a.round_bf16 && a.q_f32 == a.kv_f32 && a.dk <= 128 && a.scale_log2 > 0 &&
         static_cast<size_t>(s.smem_limit) >= Shape72::kBytes && a.out_token % 2 == 0 &&
         tokens * a.heads >= int64_t{Shape128::kQueries} * s.multiprocessors / 2;
}

size_t segments_bytes(int64_t rows, int heads, int dim) {
  return static_cast<size_t>(rows * heads * padded(dim)) * 3 * 2;
}

Status attention_segments(AttentionArgs a, int64_t tokens, const SegmentRotation& rotation, void* rounded,
                          device::Stream stream) {
  if (a.q_f32) {
    if (Status s = round_parts(a, tokens, rotation, static_cast<bf*>(rounded), stream); !s.ok()) return s;
  }
  if (a.dk <= 64) return run<Shape64>(a, tokens, stream);
  if (a.dk <= 72) return run<Shape72>(a, tokens, stream);
  return a.dk <= 80 ? run<Shape80>(a, tokens, stream) : run<Shape128>(a, tokens, stream);
}

}  // namespace tern::cuda
