// Mixture of experts: choose, sort rows by expert, add the results up again.
#include <limits>

#include "cuda/cuda_ops.h"
#include "cuda/kernel_util.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kMostExperts = 2048;

struct RouteArgs {
  Rows<const float> logits;
  const float* bias;
  bool sigmoid, renormalize, forced;
  int experts, top_k, n_group, topk_group, split;
  float renorm_eps, renorm_min, scale;
  const int32_t* token_ids;
  ops::TokenSet second;
  Rows<int32_t> ids;
  Rows<float> weights;

  __device__ bool in_second(int64_t t) const {
    const int32_t id = token_ids[t];
    bool found = id >= second.from;
    for (int i = 0; i < second.listed; ++i) found = found || second.ids[i] == id;
    return found;
  }
};

// The lane-wise best of z[0, n) that is finite or not: the largest, the lowest index among equals. NaN never wins
// against a number.
__device__ int best_of(const float* z, const uint8_t* taken, int n) {
  const int lane = threadIdx.x;
  int best = -1;
  float value = 0.0f;
  for (int i = lane; i < n; i += 32) {
    if (!taken[i] && (best < 0 || z[i] > value || (value != value && z[i] == z[i]))) best = i, value = z[i];
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, best, d);
    const float v = __shfl_xor_sync(0xffffffffu, value, d);
    const bool number = v == v && value != value;
    if (other >= 0 &&
        (best < 0 || number || v > value || ((v == value || (v != v && value != value)) && other < best))) {
      best = other, value = v;
    }
  }
  return best;
}

__device__ void score(const RouteArgs& a, const float* logits, int n, float* scores) {
  const int lane = threadIdx.x;
  if (a.sigmoid) {
    for (int e = lane; e < n; e += 32) scores[e] = 1.0f / (1.0f + expf(-logits[e]));
    __syncwarp();
    return;
  }
  float top = -INFINITY;
  for (int e = lane; e < n; e += 32) top = fmaxf(top, logits[e]);
  top = warp_max(top);
  double sum = 0.0;
  for (int e = lane; e < n; e += 32) {
    scores[e] = expf(logits[e] - top);
    sum += static_cast<double>(scores[e]);
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  const auto total = static_cast<float>(sum);
  for (int e = lane; e < n; e += 32) scores[e] /= total;
  __syncwarp();
}

// Leaves the experts of all but the best groups out of the choice.
__device__ void limit_groups(const RouteArgs& a, int n, float* z, float* group, uint8_t* kept) {
  const int size = n / a.n_group;
  for (int g = threadIdx.x; g < a.n_group; g += 32) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      if (z[e] > first) {
        second = first, first = z[e];
      } else if (z[e] > second) {
        second = z[e];
      }
    }
    group[g] = a.bias != nullptr && size > 1 ? first + second : first;
    kept[g] = 0;
  }
  __syncwarp();
  for (int i = 0; i < a.topk_group; ++i) {
    const int g = best_of(group, kept, a.n_group);
    __syncwarp();
    if (threadIdx.x == 0 && g >= 0) kept[g] = 1;
    __syncwarp();
  }
  for (int e = threadIdx.x; e < n; e += 32) {
    if (!kept[e / size]) z[e] = -INFINITY;
  }
  __syncwarp();
}

// A warp per token. Shared memory: scores, choice values, group values, two byte arrays, of `experts` each.
__global__ void route_kernel(const RouteArgs a) {
  extern __shared__ float memory[];
  float *scores = memory, *z = scores + a.experts, *group = z + a.experts;
  auto* taken = reinterpret_cast<uint8_t*>(group + a.experts);
  uint8_t* kept = taken + a.experts;
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x;
  int begin = 0, end = a.experts;
  if (a.split >= 0) {
    if (a.in_second(t)) {
      begin = a.split;
    } else {
      end = a.split;
    }
  }
  const int n = end - begin;
  int32_t* ids = a.ids.row(t);
  float* weights = a.weights.row(t);
  if (n == 0) {
    for (int j = lane; j < a.top_k; j += 32) ids[j] = a.experts, weights[j] = j == 0 ? 1.0f : 0.0f;
    return;
  }
  score(a, a.logits.row(t) + begin, n, scores);
  if (!a.forced) {
    for (int e = lane; e < n; e += 32) {
      z[e] = a.bias == nullptr ? scores[e] : scores[e] + a.bias[begin + e];
      taken[e] = 0;
    }
    __syncwarp();
    if (a.n_group > 1 && a.topk_group < a.n_group) limit_groups(a, n, z, group, kept);
    for (int j = 0; j < a.top_k; ++j) {
      const int e = best_of(z, taken, n);
      __syncwarp();
      if (lane == 0 && e >= 0) taken[e] = 1, ids[j] = begin + e;
      __syncwarp();
    }
  }
  if (lane != 0) return;
  // Few values: one lane adds them in the order that the CPU does.
  float sum = 0.0f;
  for (int j = 0; j < a.top_k; ++j) {
    const int e = ids[j] - begin;
    weights[j] = e >= 0 && e < n ? scores[e] : 0.0f;
    sum += weights[j];
  }
  if (a.renorm_min > 0.0f && !(sum > a.renorm_min)) sum = a.renorm_min;
  const float divisor = a.renormalize ? sum + a.renorm_eps : 1.0f;
  for (int j = 0; j < a.top_k; ++j) weights[j] = weights[j] / divisor * a.scale;
}

constexpr int kSortThreads = 256;

// A block per expert: counts the pairs of lower experts, which is where its rows begin, and numbers its own pairs in
// order of tokens.
__global__ void __launch_bounds__(kSortThreads) sort_kernel(Rows<const int32_t> ids, int top_k, int64_t pairs,
                                                            int experts, int32_t* offsets, Rows<int32_t> row_of) {
  __shared__ int counts[kSortThreads / 32];
  __shared__ int lower;
  const int e = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) lower = 0;
  __syncthreads();
  int below = 0;
  for (int64_t i = threadIdx.x; i < pairs; i += kSortThreads) below += ids.row(i / top_k)[i % top_k] < e;
  below = __reduce_add_sync(0xffffffffu, below);
  if (lane == 0) atomicAdd(&lower, below);
  __syncthreads();
  int at = lower;
  if (threadIdx.x == 0) offsets[e] = at;
  for (int64_t i0 = 0; i0 < pairs; i0 += kSortThreads) {
    const int64_t i = i0 + threadIdx.x;
    const bool mine = i < pairs && ids.row(i / top_k)[i % top_k] == e;
    const unsigned who = __ballot_sync(0xffffffffu, mine);
    if (lane == 0) counts[warp] = __popc(who);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kSortThreads / 32; ++w) {
      before += w < warp ? counts[w] : 0;
      all += counts[w];
    }
    if (mine) row_of.row(i / top_k)[i % top_k] = at + before + __popc(who & ((1u << lane) - 1));
    at += all;
    __syncthreads();
  }
  if (e + 1 == experts && threadIdx.x == 0) offsets[experts] = at;
}

// Rows as bytes in words of W.
template <class W>
__global__ void spread_kernel(const char* x, int64_t x_stride, Rows<const int32_t> row_of, char* out,
                              int64_t out_stride, int64_t words) {
  const int64_t t = blockIdx.x;
  if (row_of.row(t)[blockIdx.y] < 0 || row_of.row(t)[blockIdx.y] >= int64_t{gridDim.x} * gridDim.y) return;
  const auto* from = reinterpret_cast<const W*>(x + t * x_stride);
  auto* to = reinterpret_cast<W*>(out + row_of.row(t)[blockIdx.y] * out_stride);
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}

template <class T>
struct CombineArgs {
  Rows<const T> y;
  int64_t y_rows;
  Rows<const int32_t> row_of;
  Rows<const float> weights;
  Rows<const T> shared;  // null: none
  const float* gate;     // null: 1
  Rows<T> out;
  int top_k;
  int64_t n;
};

template <class T>
__global__ void combine_kernel(const CombineArgs<T> a) {
  const int64_t t = blockIdx.x;
  const int32_t* rows = a.row_of.row(t);
  const float* weights = a.weights.row(t);
  const float scale = a.gate == nullptr ? 1.0f : 1.0f / (1.0f + expf(-a.gate[t]));
  for (int64_t i = blockIdx.y * blockDim.x + threadIdx.x; i < a.n; i += int64_t{gridDim.y} * blockDim.x) {
    float sum = 0.0f;
    for (int j = 0; j < a.top_k; ++j) {
      const int32_t r = rows[j];
      if (r >= 0 && r < a.y_rows) sum += weights[j] * as_float(a.y.row(r)[i]);
    }
    if (a.shared.data != nullptr) sum += scale * as_float(a.shared.row(t)[i]);
    a.out.row(t)[i] = from_float<T>(sum);
  }
}

}  // namespace

Status moe_route(const ops::MoeRouteParams& p, device::Stream stream) {
  constexpr const char* kOp = "moe_route";
  const int64_t n = p.logits.dim[0], experts = p.logits.dim[1];
  TERN_OP_CHECK(kOp, p.logits.dtype == DType::kF32 && p.logits.rank == 2 && ops::is_rows(p.logits),
                "logits must be [T, E] float32");
  TERN_OP_CHECK(kOp, experts <= kMostExperts, "there are more than 2048 experts");
  TERN_OP_CHECK(kOp, p.bias.data == nullptr || ops::is_vector(p.bias, DType::kF32, experts),
                "bias must be [E] float32");
  TERN_OP_CHECK(kOp, p.top_k >= 1 && (p.split >= 0 || p.top_k <= experts), "top_k is out of range");
  TERN_OP_CHECK(kOp, p.n_group >= 1 && experts % p.n_group == 0 && p.topk_group >= 1 && p.topk_group <= p.n_group,
                "the groups do not divide the experts");
  TERN_OP_CHECK(kOp, p.split >= 0 || p.n_group == 1 || p.top_k <= experts / p.n_group * p.topk_group,
                "top_k is larger than the chosen groups");
  TERN_OP_CHECK(kOp, p.ids.dtype == DType::kI32 && ops::is_matrix(p.ids, n, p.top_k), "ids must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.weights.dtype == DType::kF32 && ops::is_matrix(p.weights, n, p.top_k),
                "weights must be [T, top_k] float32");
  if (p.split >= 0) {
    TERN_OP_CHECK(kOp,
                  p.split <= experts && p.n_group == 1 && (p.split == 0 || p.top_k <= p.split) &&
                      (p.split == experts || p.top_k <= experts - p.split),
                  "two banks of experts must divide the columns, in one group, each with top_k experts");
    TERN_OP_CHECK(kOp, ops::is_vector(p.token_ids, DType::kI32, n), "token_ids must be [T] int32");
    TERN_OP_CHECK(kOp, p.second.listed >= 0 && p.second.listed <= ops::TokenSet::kMaxListed,
                  "the token set is malformed");
  }
  if (n == 0) return {};
  const RouteArgs a{rows_of<const float>(p.logits),
                    p.bias.as<const float>(),
                    p.scoring == ops::MoeScoring::kSigmoid,
                    p.renormalize,
                    p.forced,
                    static_cast<int>(experts),
                    p.top_k,
                    p.n_group,
                    p.topk_group,
                    p.split,
                    p.renorm_eps,
                    p.renorm_min,
                    p.scale,
                    p.token_ids.as<const int32_t>(),
                    p.second,
                    rows_of<int32_t>(p.ids),
                    rows_of<float>(p.weights)};
  const auto bytes = static_cast<size_t>(experts) * (3 * sizeof(float) + 2);
  route_kernel<<<static_cast<unsigned>(n), 32, bytes, raw(stream)>>>(a);
  return launched(stream, "moe_route");
}

Status moe_permute(const ops::MoePermuteParams& p, device::Stream stream) {
  constexpr const char* kOp = "moe_permute";
  const int64_t n = p.x.dim[0], top_k = p.ids.dim[1];
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && p.x.rank == 2 && ops::is_rows(p.x), "x must be [T, H]");
  TERN_OP_CHECK(kOp, p.ids.dtype == DType::kI32 && ops::is_matrix(p.ids, n, top_k), "ids must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.experts >= 1 && ops::is_vector(p.offsets, DType::kI32, p.experts + int64_t{1}),
                "offsets must be [E + 1] int32");
  TERN_OP_CHECK(kOp, p.row_of.dtype == DType::kI32 && ops::is_matrix(p.row_of, n, top_k),
                "row_of must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.out.dtype == p.x.dtype && ops::is_matrix(p.out, n * top_k, p.x.dim[1]),
                "out must be [T * top_k, H]");
  sort_kernel<<<static_cast<unsigned>(p.experts), kSortThreads, 0, raw(stream)>>>(
      rows_of<const int32_t>(p.ids), static_cast<int>(top_k), n * top_k, p.experts, p.offsets.as<int32_t>(),
      rows_of<int32_t>(p.row_of));
  if (n == 0) return launched(stream, "moe_permute");
  const auto bytes = static_cast<int64_t>(dtype_bytes(p.x.dtype));
  const int64_t row = p.x.dim[1] * bytes, from = p.x.stride[0] * bytes, to = p.out.stride[0] * bytes;
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(top_k));
  const auto spread = [&]<class W>() {
    spread_kernel<W><<<grid, 128, 0, raw(stream)>>>(static_cast<const char*>(p.x.data), from,
                                                    rows_of<const int32_t>(p.row_of), static_cast<char*>(p.out.data),
                                                    to, row / static_cast<int64_t>(sizeof(W)));
  };
  if (can_vector(p.x, p.x.dim[1]) && can_vector(p.out, p.x.dim[1])) {
    spread.template operator()<uint4>();
  } else {
    spread.template operator()<uint16_t>();
  }
  return launched(stream, "moe_permute");
}

Status moe_combine(const ops::MoeCombineParams& p, device::Stream stream) {
  constexpr const char* kOp = "moe_combine";
  const int64_t n = p.out.dim[0], h = p.out.dim[1], top_k = p.row_of.dim[1];
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && p.out.rank == 2 && ops::is_rows(p.out), "out must be [T, H]");
  TERN_OP_CHECK(kOp, p.row_of.dtype == DType::kI32 && ops::is_matrix(p.row_of, n, top_k),
                "row_of must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.weights.dtype == DType::kF32 && ops::is_matrix(p.weights, n, top_k),
                "weights must be [T, top_k]");
  TERN_OP_CHECK(kOp, p.y.dtype == p.out.dtype && ops::is_matrix(p.y, p.y.dim[0], h), "y must be [T * top_k, H]");
  TERN_OP_CHECK(kOp, p.shared.data == nullptr || (p.shared.dtype == p.out.dtype && ops::is_matrix(p.shared, n, h)),
                "shared must be [T, H]");
  TERN_OP_CHECK(kOp, p.shared_gate.data == nullptr || ops::is_vector(p.shared_gate, DType::kF32, n),
                "shared_gate must be [T] float32");
  if (n == 0) return {};
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(blocks_for(h, 1024)));
  with_type(p.out.dtype, [&]<class T>() {
    const CombineArgs<T> a{rows_of<const T>(p.y),
                           p.y.dim[0],
                           rows_of<const int32_t>(p.row_of),
                           rows_of<const float>(p.weights),
                           rows_of<const T>(p.shared),
                           p.shared_gate.as<const float>(),
                           rows_of<T>(p.out),
                           static_cast<int>(top_k),
                           h};
    combine_kernel<T><<<grid, 256, 0, raw(stream)>>>(a);
  });
  return launched(stream, "moe_combine");
}

}  // namespace tern::cuda
