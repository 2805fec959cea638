// The plan of attention work, and attention without tensor cores for what the others do not take.
#include "cuda/attention/attention_decode_range.cuh"
#include "cuda/attention/codes/kv_codes.cuh"
#include "cuda/ptx/launch.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kPlanThreads = 512, kPartSizes = 9;
constexpr int kCutTiles = 12, kClusterTiles = 8;  // see plan_ranges and item_size

__device__ int queries_of(const AttentionArgs& a, int r) { return a.row_start[r + 1] - a.row_start[r]; }
__device__ bool is_decode(const AttentionArgs& a, int r) {
  return a.decode_plan != nullptr && decode_takes(a, queries_of(a, r));
}
__device__ int units_of(const AttentionArgs& a, int r) {
  return is_decode(a, r) ? 0 : a.kv_heads * a.chunks * ((queries_of(a, r) + a.unit_tokens - 1) / a.unit_tokens);
}
__device__ int decode_units_in(const AttentionArgs& a, int r) {
  return is_decode(a, r) ? decode_units_of(a, queries_of(a, r)) : 0;
}
// Of a row's unit in DecodeRange's measure.
__device__ int decode_length(const AttentionArgs& a, int r) {
  return decode_tile_count(context_of(a, r)) + kDecodeExtra;
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

// Latent attention on Hopper. Parts of 128 tokens and up, or of one segment, or none: by which the last block is done
// first. A part costs a few tiles of 64 more than its keys: its beginning, and the state it leaves; so does a segment
// inside a unit, where states are joined on the way.
__device__ void plan_parts(const AttentionArgs& a, int* sums, int* scratch) {
  const auto tokens = [&](int i) { return i == kPartSizes - 1 ? 0 : a.deterministic_parts ? kSegment : 128 << i; };
  const auto parts = [&](int r, int i) {
    return tokens(i) == 0 ? 1 : max(1, (context_of(a, r) + tokens(i) - 1) / tokens(i));
  };
  int* longest = sums + kPartSizes;
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    const int n = units_of(a, r);
    if (n > 0) atomicMax(longest, context_of(a, r));
    for (int i = 0; i < kPartSizes; ++i) atomicAdd(&sums[i], n * parts(r, i));
  }
  __syncthreads();
  int best = kPartSizes - 1, least = 0;
  for (int i = kPartSizes - 1; i >= 0; --i) {
    const bool whole = tokens(i) == 0;
    if (!whole && sums[i] > a.slot_capacity) continue;
    const int keys = whole ? *longest : min(*longest, tokens(i));
    const int more = !whole ? 6 : a.deterministic_parts ? 2 + 4 * (keys / kSegment) : 2;
    const int cost = (sums[i] + a.part_blocks - 1) / a.part_blocks * ((keys + 63) / 64 + more);
    if (whole || cost < least) best = i, least = cost;
  }
  int* units = a.plan + plan_words(a.rows);
  const int items = number_rows(a.rows, a.plan + 2, scratch, [&](int r) { return units_of(a, r) * parts(r, best); });
  const int all = number_rows(a.rows, units + 2, scratch, [&](int r) { return units_of(a, r); });
  if (threadIdx.x == 0) a.plan[0] = tokens(best), a.plan[1] = items, units[1] = all;
}

// Items of 1024 or 256 keys, by which leaves less of the GPU idle in the last turn; without room for states, whole
// units.
__device__ void plan_rounds(const AttentionArgs& a, int* sums, int* scratch) {
  constexpr int kLong = kSegment / 256;
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    const int n = decode_units_in(a, r);
    atomicAdd(&sums[2], n * decode_parts(context_of(a, r), kLong));
    atomicAdd(&sums[3], n * decode_parts(context_of(a, r), 1));
  }
  __syncthreads();
  const auto turns = [&](int items) { return (items + a.decode_blocks - 1) / a.decode_blocks; };
  int rounds = 8 * turns(sums[3]) < 7 * kLong * turns(sums[2]) ? 1 : kLong;
  if (rounds == 1 && sums[3] > a.decode_capacity) rounds = kLong;
  if (sums[rounds == 1 ? 3 : 2] > a.decode_capacity) rounds = 0;
  const int items = number_rows(a.rows, a.decode_plan + 2, scratch,
                                [&](int r) { return decode_units_in(a, r) * decode_parts(context_of(a, r), rounds); });
  if (threadIdx.x == 0) a.decode_plan[0] = rounds, a.decode_plan[1] = items;
  for (int i = threadIdx.x; rounds != 0 && i < items; i += kPlanThreads) a.decode_counters[i] = 0;
}

// v / by, neither negative: a division of 64 bits takes a hundred instructions.
__device__ __forceinline__ int divided(int64_t v, int by) {
  return v <= 0xffffffff ? static_cast<int>(static_cast<uint32_t>(v) / static_cast<uint32_t>(by))
                         : static_cast<int>(v / by);
}

// Where range i of `ranges` begins, each `total` / `ranges` long: in a row, a unit of it, a place inside.
struct RangeBegin {
  int row, unit, inside, length, at;
  __device__ RangeBegin(const AttentionArgs& a, int i, int ranges, int total)
      : at(divided(int64_t{i} * total, ranges)) {
    row = row_of(a.decode_plan, a.rows, at);
    length = decode_length(a, row), inside = (at - a.decode_plan[2 + row]) % length,
    unit = (at - a.decode_plan[2 + row]) / length;
  }
  // Of the first unit that begins here or later.
  __device__ int next_unit() const { return inside > 0 ? at - inside + length : at; }
};

// `cut`: units may be in several ranges.
__device__ DecodeRange range_of(const AttentionArgs& a, int i, int ranges, int total, bool cut) {
  if (i >= ranges) return {a.rows, 0, 0, 0, 0, 0, 0, 0};
  const RangeBegin x(a, i, ranges, total);
  const int context = context_of(a, x.row), start = a.row_start[x.row], queries = queries_of(a, x.row);
  if (!cut) return {x.row, x.unit + (x.inside > 0 ? 1 : 0), 0, 0, 1, context, start, queries};
  // Long parts are cut between rounds where that leaves fewer nodes.
  const int step = a.decode_deterministic && total / ranges >= 8 * kDecodeRound ? kDecodeRound : 1;
  // The last range that begins at or before place x: (x + 1) * ranges - 1 over `total`.
  const int begin = x.at - x.inside;
  const int head = divided(int64_t{begin + kDecodeExtra + step} * ranges - 1, total);
  const int last = divided(int64_t{begin + x.length} * ranges - 1, total);
  return {x.row, x.unit, max(0, x.inside - kDecodeExtra) / step * step, head, last - head + 1, context, start, queries};
}

// Units are cut where whole ones would leave some ranges much longer than others: joining parts costs as much as
// kCutTiles tiles. The GPU reads as fast without a few of its blocks, so length alone is no loss.
__device__ void plan_ranges(const AttentionArgs& a, int* sums, int* scratch) {
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    if (decode_units_in(a, r) > 0) atomicMax(&sums[2], decode_tile_count(context_of(a, r)));
  }
  const int total = number_rows(a.rows, a.decode_plan + 2, scratch,
                                [&](int r) { return decode_units_in(a, r) * decode_length(a, r); });
  __syncthreads();
  const int ranges = total == 0 ? 0 : max(1, min(total / kDecodeLeast, a.decode_ranges));
  for (int i = threadIdx.x; i < ranges; i += kPlanThreads) {
    const int end = i + 1 == ranges ? total : RangeBegin(a, i + 1, ranges, total).next_unit();
    atomicMax(&sums[3], end - RangeBegin(a, i, ranges, total).next_unit());
  }
  __syncthreads();
  const int most = total == 0 ? 0 : min(sums[2], total / ranges + 1);  // tiles of a part
  const bool cut = most / kDecodeSegment + 2 * kDecodeRound <= a.decode_capacity && total > 0 &&
                   sums[3] - total / ranges > kCutTiles;
  auto* to = reinterpret_cast<DecodeRange*>(a.decode_counters + kDecodeCounterWords);
  // Blocks read theirs before they know that there is none.
  for (int i = threadIdx.x; i <= a.decode_ranges; i += kPlanThreads) {
    to[i] = range_of(a, i, ranges, total, cut);
    a.decode_counters[i] = 0;
  }
  if (threadIdx.x == 0) a.decode_plan[0] = ranges;
}

// The smallest size of an item, in tiles, with which all clusters have one at most; units are left whole up to
// kClusterTiles tiles of a block. Every warp tries a size.
__device__ int item_size(const AttentionArgs& a, int longest, int tiles, int* scratch) {
  constexpr int kWarps = kPlanThreads / 32;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int size = max(kClusterTiles * a.decode_cluster, (tiles + a.decode_ranges - 1) / a.decode_ranges);
  while (size < longest) {
    const int mine = size + size * warp / kWarps;
    int items = 0;
    for (int r = lane; r < a.rows; r += 32) {
      items += decode_units_in(a, r) * max(1, (decode_tile_count(context_of(a, r)) + mine - 1) / mine);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) items += __shfl_xor_sync(0xffffffffu, items, d);
    __syncthreads();
    if (lane == 0) scratch[warp] = items;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      if (scratch[w] <= a.decode_ranges) return size + size * w / kWarps;
    }
    size *= 2;
  }
  return size;
}

// Items for clusters of blocks. There are at least as many clusters as units.
__device__ void plan_items(const AttentionArgs& a, int* sums, int* scratch) {
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    const int units = decode_units_in(a, r), tiles = decode_tile_count(context_of(a, r));
    if (units > 0) atomicMax(&sums[2], tiles);
    atomicAdd(&sums[3], units * tiles);
  }
  __syncthreads();
  const int size = a.decode_nodes > 0 ? max(1, sums[2]) : item_size(a, sums[2], sums[3], scratch);
  const auto parts_of = [&](int r) { return max(1, (decode_tile_count(context_of(a, r)) + size - 1) / size); };
  const int items =
      number_rows(a.rows, a.decode_plan + 2, scratch, [&](int r) { return decode_units_in(a, r) * parts_of(r); });
  __syncthreads();
  auto* to = reinterpret_cast<DecodeItem*>(a.decode_counters + kDecodeCounterWords);
  for (int i = threadIdx.x; i < items; i += kPlanThreads) {
    const int row = row_of(a.decode_plan, a.rows, i);
    const int parts = parts_of(row), index = i - a.decode_plan[2 + row], part = index % parts,
              context = context_of(a, row);
    const int tiles = decode_tile_count(context);
    to[i] = {row,
             index / parts,
             static_cast<int>(int64_t{tiles} * part / parts),
             static_cast<int>(int64_t{tiles} * (part + 1) / parts),
             part,
             parts,
             context,
             a.row_start[row],
             queries_of(a, row),
             {}};
  }
  for (int i = threadIdx.x; i < items * a.decode_cluster; i += kPlanThreads) a.decode_counters[i] = 0;
  if (threadIdx.x == 0) a.decode_plan[0] = items;
}

// Whole units for clusters that keep to the order of ranges; where one is too long for them, ranges.
__device__ void plan_deterministic(const AttentionArgs& a, int* sums, int* scratch) {
  for (int r = threadIdx.x; r < a.rows; r += kPlanThreads) {
    if (decode_units_in(a, r) > 0) atomicMax(&sums[4], decode_tile_count(context_of(a, r)));
  }
  __syncthreads();
  const bool ranges = sums[4] > a.decode_nodes * a.decode_cluster * kDecodeSegment;
  if (threadIdx.x == 0) a.decode_plan[1] = ranges ? 1 : 0;
  if (ranges) {
    plan_ranges(a, sums, scratch);
  } else {
    plan_items(a, sums, scratch);
  }
}

// Of up to so many rows what the plan reads again and again lies in shared memory while it is made.
constexpr int kNearRows = 512, kDecodePlanHead = 2;  // words of AttentionArgs::decode_plan before its rows
struct NearRows {
  int start[kNearRows + 1], context[kNearRows], decode_plan[kDecodePlanHead + kNearRows + 1];
};

__device__ AttentionArgs bring_near(AttentionArgs a, NearRows& rows) {
  for (int r = threadIdx.x; r <= a.rows; r += kPlanThreads) {
    rows.start[r] = a.row_start[r];
    if (r < a.rows) rows.context[r] = context_of(a, r);
  }
  if (threadIdx.x < kDecodePlanHead) rows.decode_plan[threadIdx.x] = 0;
  a.row_start = rows.start, a.context_len = rows.context, a.decode_plan = rows.decode_plan;
  return a;
}

__device__ void plan_rows(const AttentionArgs& a, int* sums, int* scratch) {
  if (!a.decode_all) plan_units(a, sums, scratch);
  if (a.decode_plan == nullptr) return;
  if (a.decode_nodes > 0) {
    plan_deterministic(a, sums, scratch);
  } else if (a.decode_cluster > 0) {
    plan_items(a, sums, scratch);
  } else if (a.decode_ranges > 0) {
    plan_ranges(a, sums, scratch);
  } else {
    plan_rounds(a, sums, scratch);
  }
}

__device__ void make_plan(const AttentionArgs& a, NearRows& near, int* sums, int* scratch) {
  if (threadIdx.x <= kPartSizes) sums[threadIdx.x] = 0;
  if (a.part_blocks > 0) {
    __syncthreads();
    plan_parts(a, sums, scratch);
  } else if (a.decode_plan == nullptr || a.rows > kNearRows) {
    __syncthreads();
    plan_rows(a, sums, scratch);
  } else {
    const AttentionArgs b = bring_near(a, near);
    __syncthreads();
    plan_rows(b, sums, scratch);
    __syncthreads();
    for (int i = threadIdx.x; i <= kDecodePlanHead + a.rows; i += kPlanThreads) a.decode_plan[i] = near.decode_plan[i];
  }
}

// The next kernel may start when the plan is written (decode_early).
__global__ void plan_kernel(const AttentionArgs a) {
  __shared__ int scratch[kPlanThreads / 32], sums[kPartSizes + 1];
  __shared__ NearRows near;
  if (threadIdx.x < 32) bring_parameters(a);
  wait_for_previous();
  make_plan(a, near, sums, scratch);
  __threadfence();
  __syncthreads();
  let_next_start();
}

// Value i of key, or value, j; `row`: where it lies, unless it is codes.
__device__ __forceinline__ float element(const AttentionArgs& a, const AttentionUnit& u, bool values, int j,
                                         const char* row, int i) {
  if (a.code != KvCode::kNone) return code_element(a, u, values, j, i);
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
      for (int i = 0; i < a.dk; ++i) d += q[i] * element(a, u, false, j0 + lane, row, i);
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
      for (int i = lane; i < a.dv; i += 32) sums[i] += w * element(a, u, true, j0 + j, row, i);
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

}  // namespace tern::cuda
