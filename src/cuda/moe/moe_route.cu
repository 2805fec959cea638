// Mixture of experts: the choice of experts and their weights.
#include "cuda/moe/moe_route.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kMostExperts = 2048;

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
  let_next_start();
  wait_for_previous();
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

constexpr int kMostWarps = 4;  // of a block, where blocks would be many

// A warp per token.
template <int kEach>
__global__ void __launch_bounds__(32 * kMostWarps) route_few_kernel(const RouteArgs a, int tokens) {
  const LaneBias<kEach> bias(a);
  if (gridDim.x <= 32) let_next_start();
  bring_parameters(a);
  wait_for_previous();
  const int lane = threadIdx.x & 31, t = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  if (t >= tokens) return;
  const Ranked mine = route_row(a, a.logits.row(t), bias);
  if (lane < a.top_k) a.ids.row(t)[lane] = mine.expert, a.weights.row(t)[lane] = mine.weight;
}

}  // namespace

Expected<RouteArgs> route_args(const ops::MoeRouteParams& p) {
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
  return RouteArgs{rows_of<const float>(p.logits),
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
}

bool route_fits_lanes(const ops::MoeRouteParams& p) {
  return p.split < 0 && !p.forced && (p.n_group == 1 || p.topk_group == p.n_group) && p.top_k <= 32 &&
         p.logits.dim[1] <= 256;
}

Status moe_route(const ops::MoeRouteParams& p, device::Stream stream) {
  TERN_ASSIGN_OR_RETURN(const RouteArgs a, route_args(p));
  const int64_t n = p.logits.dim[0], experts = p.logits.dim[1];
  if (n == 0) return {};
  const bool few = route_fits_lanes(p);
  const int64_t warps = n > 1024 ? kMostWarps : 1;
  const Shape each{static_cast<unsigned>(blocks_for(n, warps)), static_cast<unsigned>(32 * warps)};
  if (few && experts <= 64) return launch(stream, "moe_route_few", each, route_few_kernel<2>, a, static_cast<int>(n));
  if (few && experts <= 128) return launch(stream, "moe_route_few", each, route_few_kernel<4>, a, static_cast<int>(n));
  if (few) return launch(stream, "moe_route_few", each, route_few_kernel<8>, a, static_cast<int>(n));
  const auto bytes = static_cast<size_t>(experts) * (3 * sizeof(float) + 2);
  return launch(stream, "moe_route", {static_cast<unsigned>(n), 32, bytes}, route_kernel, a);
}

}  // namespace tern::cuda
