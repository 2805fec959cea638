// The plan of attention work, and attention without tensor cores for what the others do not take.
#include "cuda/attention_unit.cuh"
#include "cuda/launch.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kPlanThreads = 256;

__device__ int queries_of(const AttentionArgs& a, int r) { return a.row_start[r + 1] - a.row_start[r]; }
__device__ bool is_few(const AttentionArgs& a, int r) {
  return a.few != nullptr && (a.few_all || queries_of(a, r) <= a.few_tokens);
}
__device__ int units_of(const AttentionArgs& a, int r) {
  return is_few(a, r) ? 0 : a.kv_heads * a.chunks * ((queries_of(a, r) + a.unit_tokens - 1) / a.unit_tokens);
}
__device__ int few_units_of(const AttentionArgs& a, int r) {
  return is_few(a, r) ? a.kv_heads * a.few_chunks * ((queries_of(a, r) + a.few_tokens - 1) / a.few_tokens) : 0;
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

// first[r]: sum of count(q) over rows q < r; returns the sum over all.
template <class Count>
__device__ int number_rows(int rows, int* first, int* scratch, const Count& count) {
  int before = 0;
  for (int r0 = 0; r0 < rows; r0 += kPlanThreads) {
    const int r = r0 + static_cast<int>(threadIdx.x), n = r < rows ? count(r) : 0;
    const int last = block_scan(n, scratch);
    if (r < rows) first[r] = before + last - n;
    for (int w = 0; w < kPlanThreads / 32; ++w) before += scratch[w];
    __syncthreads();
  }
  if (threadIdx.x == 0) first[rows] = before;
  return before;
}

// Splits when units alone would leave the GPU idle and there is room for the states of all their segments.
__device__ void plan_units(const AttentionArgs& a, int* sums, int* scratch) {
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    const int n = units_of(a, r), each = max(1, (context_of(a, r) + kSegment - 1) / kSegment);
    atomicAdd(&sums[0], n);
    atomicAdd(&sums[1], n * each);
  }
  __syncthreads();
  const bool split = sums[0] < a.split_below && sums[1] > sums[0] && sums[1] <= a.slot_capacity;
  const int items = number_rows(a.rows, a.plan + 2, scratch, [&](int r) {
    return units_of(a, r) * (split ? max(1, (context_of(a, r) + kSegment - 1) / kSegment) : 1);
  });
  if (threadIdx.x == 0) a.plan[0] = split, a.plan[1] = items, a.plan[3 + a.rows] = a.plan[4 + a.rows] = 0;
}

// Items of 1024 or 256 keys, by which leaves less of the GPU idle in the last turn; without room for states, whole
// units.
__device__ void plan_few(const AttentionArgs& a, int* sums, int* scratch) {
  constexpr int kLong = kSegment / 256;
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    const int n = few_units_of(a, r);
    atomicAdd(&sums[2], n * few_parts(context_of(a, r), kLong));
    atomicAdd(&sums[3], n * few_parts(context_of(a, r), 1));
  }
  __syncthreads();
  const auto turns = [&](int items) { return (items + a.few_blocks - 1) / a.few_blocks; };
  int rounds = 8 * turns(sums[3]) < 7 * kLong * turns(sums[2]) ? 1 : kLong;
  if (rounds == 1 && sums[3] > a.few_capacity) rounds = kLong;
  if (sums[rounds == 1 ? 3 : 2] > a.few_capacity) rounds = 0;
  const int items = number_rows(a.rows, a.few + 2, scratch,
                                [&](int r) { return few_units_of(a, r) * few_parts(context_of(a, r), rounds); });
  if (threadIdx.x == 0) a.few[0] = rounds, a.few[1] = items;
  for (int i = threadIdx.x; rounds != 0 && i < items; i += kPlanThreads) a.few_counters[i] = 0;
}

__global__ void plan_kernel(const AttentionArgs a) {
  __shared__ int scratch[kPlanThreads / 32], sums[4];
  let_next_start();
  wait_for_previous();
  if (threadIdx.x < 4) sums[threadIdx.x] = 0;
  __syncthreads();
  if (!a.few_all) plan_units(a, sums, scratch);
  if (a.few != nullptr) plan_few(a, sums, scratch);
}

__device__ __forceinline__ float element(const char* row, int i, const AttentionArgs& a) {
  const float v = a.kv_f32 ? reinterpret_cast<const float*>(row)[i] : as_float(reinterpret_cast<const bf*>(row)[i]);
  return a.round_bf16 ? rounded<bf>(v) : v;
}

// A warp per query: scores of 32 keys at a time, then their values. Dynamic shared memory: the query and the sums.
__global__ void plain_kernel(const AttentionArgs a, int64_t tokens) {
  extern __shared__ float memory[];
  let_next_start();
  wait_for_previous();
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
    __syncwarp();
    for (int i = lane; i < a.dv; i += 32) sums[i] *= alpha;
    for (int j = 0; j < min(32, visible - j0); ++j) {
      const float w = __shfl_sync(0xffffffffu, weight, j);
      const char* row = value_row(a, u, j0 + j, bytes);
      for (int i = lane; i < a.dv; i += 32) sums[i] += w * element(row, i, a);
    }
    __syncwarp();
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
  return launch(stream, "attention_plan", {1, kPlanThreads}, plan_kernel, a);
}

Status attention_plain(const AttentionArgs& a, int64_t tokens, device::Stream stream) {
  const size_t bytes = static_cast<size_t>(a.dk + a.dv) * sizeof(float);
  TERN_OP_CHECK("attention", bytes <= 48 * 1024 && a.heads <= 65535, "a head is too long for the plain kernel");
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(a.heads));
  return launch(stream, "attention_plain", {grid, 32, bytes}, plain_kernel, a, tokens);
}

AttentionArgs mma_units(AttentionArgs a, int queries, device::Stream stream) {
  const int group = a.heads / a.kv_heads;
  a.chunks = (group + queries - 1) / queries;
  a.chunk_heads = (group + a.chunks - 1) / a.chunks;
  a.unit_tokens = queries / a.chunk_heads;
  a.slot_capacity = a.slots == nullptr ? 0 : kSplitBytes / (static_cast<int64_t>(queries) * (a.dv + 2) * 4);
  a.split_below = 2 * state(stream).multiprocessors;
  return a;
}

}  // namespace tern::cuda
