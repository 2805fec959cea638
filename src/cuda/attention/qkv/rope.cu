// Rotary positions, and the pass between the QKV projection and attention: norms of heads, rotation, the cache write.
#include "cuda/attention/qkv/qkv_any_head.cuh"
#include "cuda/attention/qkv/qkv_head.cuh"
#include "cuda/attention/qkv/qkv_prepare.h"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

__global__ void table_kernel(const int32_t* positions, int64_t row, const float* freq, const uint8_t* axis, int half,
                             float factor, Rows<float> cos_out, Rows<float> sin_out) {
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    const int32_t position = positions[(axis[i] < 3 ? axis[i] : 0) * row + t];
    // A float32 product as in the references, then the exact cosine of it.
    const double angle = static_cast<double>(__fmul_rn(static_cast<float>(position), freq[i]));
    double s, c;
    sincos(angle, &s, &c);
    cos_out.row(t)[i] = factor * static_cast<float>(c);
    sin_out.row(t)[i] = factor * static_cast<float>(s);
  }
}

// A warp per head. x is rotated in place, and a copy goes to `out`.
template <class T, class O>
__global__ void rope_kernel(T* x, int64_t x_row, int64_t x_head, O* out, int64_t out_row, int64_t out_head,
                            Rows<const float> cos_in, Rows<const float> sin_in, int64_t heads, int dim, int half,
                            bool interleaved, int64_t total) {
  let_next_start();
  wait_for_previous();
  const int64_t at = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (at >= total) return;
  const int64_t t = at / heads, h = at % heads;
  T* head = x + t * x_row + h * x_head;
  const float *c = cos_in.row(t), *s = sin_in.row(t);
  const int lane = threadIdx.x & 31;
  for (int i = lane; i < half; i += 32) {
    const int2 p = pair_of(i, half, interleaved);
    const float a = as_float(head[p.x]), b = as_float(head[p.y]);
    head[p.x] = from_float<T>(a * c[i] - b * s[i]);
    head[p.y] = from_float<T>(b * c[i] + a * s[i]);
  }
  if (out == nullptr) return;
  __syncwarp();
  O* to = out + t * out_row + h * out_head;
  for (int i = lane; i < dim; i += 32) to[i] = from_float<O>(as_float(head[i]));
}

// A block per token, a warp per head in turn. Where the cache is narrower than qkv the row is left as bfloat16 in its
// own first half: every warp then reads all its heads before the block's barrier and writes after it.
template <class T, class C>
__global__ void qkv_kernel(T* qkv, const QkvArgs a) {
  extern __shared__ float shared[];
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, all = a.heads + 2 * a.kv_heads;
  for (int h = warp; h < all; h += warps) bring_head(qkv, a, t, h, shared + h * a.dim);
  __syncthreads();
  C* left = reinterpret_cast<C*>(qkv + t * a.row);
  for (int i = threadIdx.x; i < all * a.dim; i += blockDim.x) left[i] = from_float<C>(shared[i]);
  const int64_t slot = a.slots[t];
  if (slot < a.block_size) return;  // the null block: padding rows
  char* block = a.cache + slot / a.block_size * a.block_stride;
  const int64_t offset = slot % a.block_size, head_elements = int64_t{a.dim} * a.block_size;
  C* to = reinterpret_cast<C*>(block) + offset * a.dim;
  const float* from = shared + a.heads * a.dim;
  for (int i = threadIdx.x; i < 2 * a.kv_heads * a.dim; i += blockDim.x) {
    to[i / a.dim * head_elements + i % a.dim] = from_float<C>(from[i]);
  }
}

constexpr int kHeadWarps = 4;

// The same with a warp per head and q in a place of its own. Shared memory: a head per warp.
template <class T, class C>
__global__ void __launch_bounds__(32 * kHeadWarps) qkv_heads_kernel(const T* qkv, const QkvArgs a) {
  extern __shared__ float shared[];
  let_next_start();
  wait_for_previous();
  const HeadOfWarp mine(a);
  if (mine.token >= a.tokens) return;
  C* to = a.place<C>(mine.token, mine.head);
  if (to == nullptr) return;
  float* v = shared + threadIdx.x / 32 * a.dim;
  bring_head(qkv, a, mine.token, mine.head, v);
  for (int i = threadIdx.x & 31; i < a.dim; i += 32) to[i] = from_float<C>(v[i]);
}

// Heads of 64 or 128 values, rotated whole: everything stays in registers.
template <class T, class C, int kEach, bool kInterleaved>
__global__ void __launch_bounds__(32 * kHeadWarps) qkv_fast_kernel(const T* qkv, const QkvArgs a) {
  const int all = a.heads + 2 * a.kv_heads, lane = threadIdx.x & 31;
  const int64_t at = int64_t{blockIdx.x} * kHeadWarps + threadIdx.x / 32, t = at / all;
  const auto h = static_cast<int>(at % all);
  const void* norm = h < a.heads ? a.q_norm : h < a.heads + a.kv_heads ? a.k_norm : nullptr;
  let_next_start();
  QkvHead<kEach> head;
  typename QkvHead<kEach>::Values weight;
  if (norm != nullptr) head.read(norm, a.norm_bf16, kInterleaved, weight);
  bring_parameters(a);
  wait_for_previous();
  if (t >= a.tokens) return;
  head.read(qkv + t * a.row + h * a.dim, kInterleaved, head.v);
  const bool turns = h < a.heads + a.kv_heads && a.cos != nullptr;
  float c[kEach], s[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    c[j] = turns ? a.cos[t * a.cos_row + lane * kEach + j] : 1.0f;
    s[j] = turns ? a.sin[t * a.sin_row + lane * kEach + j] : 0.0f;
  }
  C* to = a.place<C>(t, h);
  if (to == nullptr) return;
  if (norm != nullptr) head.template normalise<T>(weight, a.eps);
  if (turns) head.turn(c, s);
  head.write(to, kInterleaved);
}

template <class T>
__global__ void mla_write_kernel(Rows<const T> latent, int64_t rank, Rows<const T> tail, int64_t rope_dim, char* cache,
                                 int64_t block_stride, int block_size, const int64_t* slots) {
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x, slot = slots[t];
  if (slot < block_size) return;
  T* to = reinterpret_cast<T*>(cache + slot / block_size * block_stride) + slot % block_size * (rank + rope_dim);
  for (int64_t i = threadIdx.x; i < rank + rope_dim; i += blockDim.x) {
    to[i] = i < rank ? latent.row(t)[i] : tail.row(t)[i - rank];
  }
}

// Null when cos and sin fit, else what is wrong.
const char* check_tables(const TensorView& cos, const TensorView& sin, int64_t rows, int64_t head_dim) {
  if (cos.dtype != DType::kF32 || cos.rank != 2 || !ops::is_rows(cos) || cos.dim[0] != rows) {
    return "cos must be [T, d/2] f32";
  }
  if (sin.dtype != DType::kF32 || !ops::is_matrix(sin, rows, cos.dim[1])) return "sin must be like cos";
  return 2 * cos.dim[1] > head_dim ? "the rotated part is wider than a head" : nullptr;
}

const char* check_qkv(const ops::QkvPrepareParams& p) {
  const KvSpec& s = p.cache.spec;
  const int64_t n = p.qkv.dim[0], all = int64_t{p.heads} + 2 * int64_t{p.kv_heads};
  if (p.heads < 1 || p.kv_heads < 1 || p.head_dim < 8 || p.head_dim % 8 != 0) {
    return "a head size is not a multiple of 8";
  }
  if (!ops::is_act(p.qkv.dtype) || !ops::is_matrix(p.qkv, n, all * p.head_dim)) {
    return "qkv must be [T, (heads + 2 * kv_heads) * D]";
  }
  for (const TensorView* w : {&p.q_norm, &p.k_norm}) {
    if (w->data != nullptr && (!ops::is_act(w->dtype) || !ops::is_vector(*w, w->dtype, p.head_dim))) {
      return "a norm must be [D]";
    }
  }
  if (p.q_norm.data != nullptr && p.k_norm.data != nullptr && p.q_norm.dtype != p.k_norm.dtype) {
    return "the norms must be of one type";
  }
  const bool type_fits = s.quantized() ? p.head_dim % 16 == 0 && s.block_size % 16 == 0 && p.q.data != nullptr
                                       : s.dtype == p.qkv.dtype || s.dtype == DType::kBF16;
  if (s.arrangement != KvArrangement::kHeadsKV || !type_fits || s.kv_heads != p.kv_heads ||
      s.head_dim_k != p.head_dim || s.head_dim_v != p.head_dim || s.block_size < 1 ||
      p.cache.block_stride < s.layer_block_bytes()) {
    return "the cache does not fit these heads (a GPU keeps kHeadsKV)";
  }
  if (n > 0 && p.cache.base == nullptr) return "there is no cache";
  if (!ops::is_vector(p.slot_mapping, DType::kI64, n)) return "slot_mapping must be [T] int64";
  const bool q_type = s.quantized() ? ops::is_act(p.q.dtype) && (p.q.dtype == p.qkv.dtype || p.q.dtype == DType::kBF16)
                                    : p.q.dtype == s.dtype;
  if (p.q.data != nullptr && (!q_type || !ops::is_matrix(p.q, n, int64_t{p.heads} * p.head_dim))) {
    return "q must be [T, heads * D] of the cache's type";
  }
  return p.cos.data == nullptr ? nullptr : check_tables(p.cos, p.sin, n, p.head_dim);
}

template <class T, class C>
Status launch_heads(const ops::QkvPrepareParams& p, const QkvArgs& a, device::Stream stream) {
  const int64_t warps = a.tokens * (a.heads + 2 * a.kv_heads);
  const Shape shape{static_cast<unsigned>(blocks_for(warps, kHeadWarps)), 32 * kHeadWarps};
  const bool whole = a.cos == nullptr || 2 * a.half == a.dim;
  const T* qkv = p.qkv.as<const T>();
  if (whole && (a.dim == 128 || a.dim == 64)) {
    const auto kernel = a.dim == 128 ? a.interleaved ? qkv_fast_kernel<T, C, 2, true> : qkv_fast_kernel<T, C, 2, false>
                        : a.interleaved ? qkv_fast_kernel<T, C, 1, true>
                                        : qkv_fast_kernel<T, C, 1, false>;
    return launch(stream, "qkv_prepare_fast", shape, kernel, qkv, a);
  }
  TERN_OP_CHECK("qkv_prepare", a.dim <= 3072, "a head is longer than shared memory");
  const auto bytes = static_cast<size_t>(a.dim) * kHeadWarps * sizeof(float);
  return launch(stream, "qkv_prepare_heads", {shape.grid, shape.block, bytes}, qkv_heads_kernel<T, C>, qkv, a);
}

template <class T, class C>
Status launch_qkv(const ops::QkvPrepareParams& p, const QkvArgs& a, device::Stream stream) {
  if (a.q != nullptr) return qkv_wide_fits(p, a) ? qkv_wide(p, a, stream) : launch_heads<T, C>(p, a, stream);
  const size_t bytes = static_cast<size_t>(a.heads + 2 * a.kv_heads) * a.dim * sizeof(float);
  TERN_OP_CHECK("qkv_prepare", bytes <= static_cast<size_t>(state(stream).smem_limit),
                "a row is longer than shared memory");
  return launch(stream, "qkv_prepare", {static_cast<unsigned>(p.qkv.dim[0]), 256, bytes}, qkv_kernel<T, C>,
                p.qkv.as<T>(), a);
}

}  // namespace

Status rope_table(const ops::RopeTableParams& p, device::Stream stream) {
  constexpr const char* kOp = "rope_table";
  const int64_t half = p.inv_freq.dim[0], n = p.cos.dim[0];
  TERN_OP_CHECK(kOp, ops::is_vector(p.inv_freq, DType::kF32, half) && half > 0, "inv_freq must be [d/2] float32");
  TERN_OP_CHECK(kOp, ops::is_vector(p.axis, DType::kU8, half), "axis must be [d/2] uint8");
  TERN_OP_CHECK(kOp, p.cos.dtype == DType::kF32 && ops::is_matrix(p.cos, n, half), "cos must be [T, d/2] float32");
  TERN_OP_CHECK(kOp, p.sin.dtype == DType::kF32 && ops::is_matrix(p.sin, n, half), "sin must be [T, d/2] float32");
  if (n == 0) return {};
  TERN_OP_CHECK(kOp, p.positions.dtype == DType::kI32 && ops::is_matrix(p.positions, 3, n),
                "positions must be [3, T] int32");
  return launch(stream, "rope_table", {static_cast<unsigned>(n), 64}, table_kernel, p.positions.as<const int32_t>(),
                p.positions.stride[0], p.inv_freq.as<const float>(), p.axis.as<const uint8_t>(), static_cast<int>(half),
                p.factor, rows_of<float>(p.cos), rows_of<float>(p.sin));
}

Status rope(const ops::RopeParams& p, device::Stream stream) {
  constexpr const char* kOp = "rope";
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && p.x.rank == 3 && ops::is_rows(p.x), "x must be [T, heads, D]");
  const char* wrong = check_tables(p.cos, p.sin, p.x.dim[0], p.x.dim[2]);
  TERN_OP_CHECK(kOp, wrong == nullptr, wrong);
  TERN_OP_CHECK(kOp,
                p.out.data == nullptr || ((p.out.dtype == p.x.dtype || p.out.dtype == DType::kBF16) &&
                                          p.out.rank == 3 && ops::is_rows(p.out) && p.out.dim[0] == p.x.dim[0] &&
                                          p.out.dim[1] == p.x.dim[1] && p.out.dim[2] == p.x.dim[2]),
                "out must be like x");
  const int64_t total = p.x.dim[0] * p.x.dim[1];
  if (total == 0) return {};
  return with_type(p.x.dtype, [&]<class T>() {
    return with_type(p.out.data == nullptr ? p.x.dtype : p.out.dtype, [&]<class O>() {
      return launch(stream, "rope", {static_cast<unsigned>(blocks_for(total, 4)), 128}, rope_kernel<T, O>, p.x.as<T>(),
                    p.x.stride[0], p.x.stride[1], p.out.as<O>(), p.out.stride[0], p.out.stride[1],
                    rows_of<const float>(p.cos), rows_of<const float>(p.sin), p.x.dim[1], static_cast<int>(p.x.dim[2]),
                    static_cast<int>(p.cos.dim[1]), p.style == ops::RopeStyle::kInterleaved, total);
    });
  });
}

Status qkv_prepare(const ops::QkvPrepareParams& p, device::Stream stream) {
  const char* wrong = check_qkv(p);
  TERN_OP_CHECK("qkv_prepare", wrong == nullptr, wrong);
  if (p.qkv.dim[0] == 0) return {};
  TERN_RETURN_IF_ERROR(launch_deferred(stream));
  return defer(p, stream) ? Status() : launch_prepare(p, stream);
}

Status launch_prepare(const ops::QkvPrepareParams& p, device::Stream stream) {
  const TensorView& norm = p.q_norm.data != nullptr ? p.q_norm : p.k_norm;
  const QkvArgs a{p.heads,
                  p.kv_heads,
                  p.head_dim,
                  static_cast<int>(p.cos.data == nullptr ? 0 : p.cos.dim[1]),
                  p.style == ops::RopeStyle::kInterleaved,
                  p.eps,
                  p.qkv.stride[0],
                  p.q_norm.data,
                  p.k_norm.data,
                  norm.dtype == DType::kBF16,
                  p.cos.as<const float>(),
                  p.sin.as<const float>(),
                  p.cos.stride[0],
                  p.sin.stride[0],
                  p.cache.base,
                  static_cast<int64_t>(p.cache.block_stride),
                  p.cache.spec.block_size,
                  p.slot_mapping.as<const int64_t>(),
                  p.q.data,
                  p.q.stride[0],
                  p.qkv.dim[0]};
  if (p.cache.spec.quantized()) return qkv_codes(p, a, stream);
  if (p.qkv.dtype == DType::kBF16) return launch_qkv<bf, bf>(p, a, stream);
  if (p.cache.spec.dtype == DType::kBF16) return launch_qkv<float, bf>(p, a, stream);
  return launch_qkv<float, float>(p, a, stream);
}

Status mla_cache_write(const ops::MlaCacheWriteParams& p, device::Stream stream) {
  constexpr const char* kOp = "mla_cache_write";
  const KvSpec& s = p.cache.spec;
  const int64_t n = p.latent.dim[0];
  TERN_OP_CHECK(kOp, ops::is_act(p.latent.dtype) && p.latent.rank == 2 && ops::is_rows(p.latent),
                "latent must be [T, rank]");
  TERN_OP_CHECK(kOp, p.rope.dtype == p.latent.dtype && p.rope.rank == 2 && ops::is_rows(p.rope) && p.rope.dim[0] == n,
                "rope must be [T, rope_dim]");
  TERN_OP_CHECK(kOp,
                s.arrangement == KvArrangement::kMlaRows && s.dtype == p.latent.dtype && s.block_size >= 1 &&
                    s.head_dim_k == p.latent.dim[1] + p.rope.dim[1] && (n == 0 || p.cache.base != nullptr) &&
                    p.cache.block_stride >= s.layer_block_bytes(),
                "the cache does not fit these rows");
  TERN_OP_CHECK(kOp, ops::is_vector(p.slot_mapping, DType::kI64, n), "slot_mapping must be [T] int64");
  if (n == 0) return {};
  return with_type(p.latent.dtype, [&]<class T>() {
    return launch(stream, "mla_cache_write", {static_cast<unsigned>(n), 128}, mla_write_kernel<T>,
                  rows_of<const T>(p.latent), p.latent.dim[1], rows_of<const T>(p.rope), p.rope.dim[1], p.cache.base,
                  static_cast<int64_t>(p.cache.block_stride), s.block_size, p.slot_mapping.as<const int64_t>());
  });
}

}  // namespace tern::cuda
