// The plan of attention work, and attention without tensor cores for what the others do not take.
#include "cuda/attention_unit.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kPlanThreads = 256;

__device__ int units_of(const AttentionArgs& a, int r) {
  const int n = a.row_start[r + 1] - a.row_start[r];
  return a.kv_heads * a.chunks * ((n + a.unit_tokens - 1) / a.unit_tokens);
}

// Inclusive sum over the block.
__device__ int block_scan(int v, int* scratch) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d) v += other;
  }
  __syncthreads();
  if (lane == 31) scratch[warp] = v;
  __syncthreads();
  for (int w = 0; w < warp; ++w) v += scratch[w];
  return v;
}

// Splits when units alone would leave the GPU idle and there is room for the states of all their segments.
__global__ void plan_kernel(const AttentionArgs a) {
  __shared__ int scratch[kPlanThreads / 32];
  __shared__ int units, segments;
  if (threadIdx.x == 0) units = segments = 0;
  __syncthreads();
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    const int n = units_of(a, r), each = max(1, (context_of(a, r) + kSegment - 1) / kSegment);
    atomicAdd(&units, n);
    atomicAdd(&segments, n * each);
  }
  __syncthreads();
  const bool split = units < a.split_below && segments > units && segments <= a.slot_capacity;
  int before = 0;
  for (int r0 = 0; r0 < a.rows; r0 += kPlanThreads) {
    const int r = r0 + threadIdx.x;
    int n = 0;
    if (r < a.rows) n = units_of(a, r) * (split ? max(1, (context_of(a, r) + kSegment - 1) / kSegment) : 1);
    const int last = block_scan(n, scratch);
    if (r < a.rows) a.plan[2 + r] = before + last - n;
    int all = 0;
    for (int w = 0; w < kPlanThreads / 32; ++w) all += scratch[w];
    before += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) a.plan[0] = split, a.plan[1] = before, a.plan[2 + a.rows] = before;
}

__device__ __forceinline__ float element(const char* row, int i, const AttentionArgs& a) {
  const float v = a.kv_f32 ? reinterpret_cast<const float*>(row)[i] : as_float(reinterpret_cast<const bf*>(row)[i]);
  return a.round_bf16 ? rounded<bf>(v) : v;
}

// A warp per query: scores of 32 keys at a time, then their values. Dynamic shared memory: the query and the sums.
__global__ void plain_kernel(const AttentionArgs a, int64_t tokens) {
  extern __shared__ float memory[];
  const int lane = threadIdx.x & 31, bytes = a.kv_f32 ? 4 : 2;
  const int64_t token = blockIdx.x;
  const int head = blockIdx.y, group = a.heads / a.kv_heads;
  int r = 0;
  while (r + 1 < a.rows && a.row_start[r + 1] <= token) ++r;
  if (token < a.row_start[0] || token >= a.row_start[a.rows]) return;
  AttentionUnit u{};
  u.row = r, u.kv_head = head / group, u.context = context_of(a, r);
  const int n = a.row_start[r + 1] - a.row_start[r];
  const int last = u.context - n + static_cast<int>(token) - a.row_start[r] + 1;
  const int visible = a.context_len == nullptr ? u.context : min(u.context, last);
  float *q = memory, *sums = memory + a.dk;
  for (int i = lane; i < a.dk; i += 32) {
    const int64_t at = token * a.q_token + head * a.q_head + i;
    const float v = a.q_f32 ? static_cast<const float*>(a.q)[at] : as_float(static_cast<const bf*>(a.q)[at]);
    q[i] = a.round_bf16 ? rounded<bf>(v) : v;
  }
  for (int i = lane; i < a.dv; i += 32) sums[i] = 0.0f;
  __syncwarp();
  float m = -INFINITY, l = 0.0f;
  for (int j0 = 0; j0 < visible; j0 += 32) {
    float s = -INFINITY;
    if (j0 + lane < visible) {
      const char* row = key_row(a, u, j0 + lane, bytes);
      float d = 0.0f;
      for (int i = 0; i < a.dk; ++i) d += q[i] * element(row, i, a);
      s = d * a.scale_log2;
    }
    const float now = fmaxf(m, warp_max(s)), base = now == -INFINITY ? 0.0f : now;
    const float alpha = exp2f(m - base), p = exp2f(s - base);
    l = l * alpha + warp_sum(p);
    m = now;
    const float weight = a.round_bf16 ? rounded<bf>(p) : p;
    for (int i = lane; i < a.dv; i += 32) sums[i] *= alpha;
    for (int j = 0; j < min(32, visible - j0); ++j) {
      const float w = __shfl_sync(0xffffffffu, weight, j);
      const char* row = value_row(a, u, j0 + j, bytes);
      for (int i = lane; i < a.dv; i += 32) sums[i] += w * element(row, i, a);
    }
  }
  for (int i = lane; i < a.dv; i += 32) {
    const int64_t at = token * a.out_token + head * a.out_head + i;
    const float y = l > 0.0f || l != l ? sums[i] / l : 0.0f;
    if (a.out_f32) {
      static_cast<float*>(a.out)[at] = y;
    } else {
      static_cast<bf*>(a.out)[at] = from_float<bf>(y);
    }
  }
}

}  // namespace

Status launch_plan(const AttentionArgs& a, device::Stream stream) {
  plan_kernel<<<1, kPlanThreads, 0, raw(stream)>>>(a);
  return launched(stream, "attention_plan");
}

Status attention_plain(const AttentionArgs& a, int64_t tokens, device::Stream stream) {
  const size_t bytes = static_cast<size_t>(a.dk + a.dv) * sizeof(float);
  TERN_OP_CHECK("attention", bytes <= 48 * 1024 && a.heads <= 65535, "a head is too long for the plain kernel");
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(a.heads));
  plain_kernel<<<grid, 32, bytes, raw(stream)>>>(a, tokens);
  return launched(stream, "attention_plain");
}

}  // namespace tern::cuda
