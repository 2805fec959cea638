// Decode attention on Hopper with few units: a cluster of 2 to 8 blocks has an item, a unit or a part of one, and deals
// its tiles out among its blocks, so that all of a short context is under way at once. Every block of the cluster is
// sent its share of all sums (some queries' columns) through shared memory, joins them and writes them out: one barrier
// of the cluster, nothing through global memory. Parts of a unit, which only long contexts have (plan_items), leave
// their shares in `slots`; of the blocks with the same share the last joins them.
//
// Sums are joined in the order of their tiles, by pieces that follow from the lengths of all rows: the same step has
// the same bits, a row beside other rows may not: deterministic mode has attention_decode_cluster_deterministic.cuh
// instead.
#pragma once

#include "cuda/attention/choice.h"
#include "cuda/attention/decode/attention_decode_tma.cuh"

namespace tern::cuda {
namespace {

// The barrier of the cluster in two steps; what was written before the first is seen after the second, unless nothing
// was (a release waits for all of this block's writes). No thread may end between the two.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory"); }

// The same place of another block's shared memory.
__device__ __forceinline__ uint32_t cluster_address(const void* p, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(shared_address(p)), "r"(rank));
  return there;
}
__device__ __forceinline__ void cluster_store(uint32_t to, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;\n" ::"r"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void cluster_store(uint32_t to, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};\n" ::"r"(to), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ int cluster_bits(const AttentionArgs& a) { return 31 - __clz(a.decode_cluster); }

template <class S>
struct ClusterShape {
  static constexpr int kQueries = 8 * S::kN, kSums = kQueries * S::kD;
  static constexpr size_t kBytes = S::kBytes + sizeof(float) * (kSums + kMostCluster * kQueries * 2);
};

// The rank's share of a unit: of the groups of 32 columns of all queries every a.decode_cluster-th.
template <class S>
class ClusterShare {
 public:
  __device__ ClusterShare(const AttentionArgs& a, const DecodePiece& p, const DecodeShared<S>& sh, int rank)
      : a_(a), p_(p), rank_(rank), bits_(cluster_bits(a)) {
    values_ = reinterpret_cast<float*>(sh.last + 4), states_ = reinterpret_cast<float2*>(values_ + T::kSums);
    groups_ = (p.u.queries() * kGroups + a.decode_cluster - 1) >> bits_;
  }
  // To all blocks of the cluster what is theirs of this block's sums; nothing was found if `none`.
  __device__ __forceinline__ void send(const DecodeState<S>& s, bool none) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, queries = p_.u.queries();
#pragma unroll
    for (int q = 0; q < 2 * S::kN; ++q) {
      const int i = q / 2 * 8 + lane % 4 * 2 + q % 2, to = warp * 8 + lane / 4;
      if (i >= queries) continue;
      if (to < a_.decode_cluster) {
        cluster_store(cluster_address(states_ + rank_ * T::kQueries + i, to), none ? -INFINITY : s.m[q], s.l[q]);
      }
      if (none) continue;
#pragma unroll
      for (int r = 0; r < 2 * S::kRows; ++r) {
        const int column = S::column(threadIdx.x, r / 2, r % 2), group = i * kGroups + column / 32;
        const float* at = values_ + (rank_ * groups_ + (group >> bits_)) * 32 + column % 32;
        cluster_store(cluster_address(at, group & (a_.decode_cluster - 1)), s.v[r / 2][q / 2][r % 2 * 2 + q % 2]);
      }
    }
  }
  // What all blocks sent. f(i, query, column, sum, m, l) for this thread's columns, i-th of the share.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
    for (int i = threadIdx.x; i < groups_ * 32; i += 128) {
      const int group = ((i / 32) << bits_) + rank_, query = group / kGroups;
      if (query >= p_.u.queries()) break;
      f(i, query, group % kGroups * 32 + i % 32);
    }
  }
  // Sum, m and l of one column over the cluster.
  __device__ __forceinline__ float4 joined(int i, int query) const {
    float m = -INFINITY;
#pragma unroll 4
    for (int s = 0; s < a_.decode_cluster; ++s) m = fmaxf(m, states_[s * T::kQueries + query].x);
    const float base = m == -INFINITY ? 0.0f : m;
    float v = 0.0f, l = 0.0f;
#pragma unroll 4
    for (int s = 0; s < a_.decode_cluster; ++s) {
      const float2 state = states_[s * T::kQueries + query];
      const float x = values_[s * groups_ * 32 + i], f = power2(__fsub_rn(state.x, base));
      const bool none = state.x == -INFINITY;
      v = none ? v : __fmaf_rn(x, f, v), l = none ? l : __fmaf_rn(state.y, f, l);
    }
    return make_float4(v, m, l, 0.0f);
  }
  // Where the share of a part is left.
  __device__ __forceinline__ float4* slot(int item) const {
    return reinterpret_cast<float4*>(a_.slots) + int64_t{item} * T::kSums + rank_ * (T::kSums >> bits_);
  }

 private:
  using T = ClusterShape<S>;
  static constexpr int kGroups = S::kD / 32;
  const AttentionArgs& a_;
  const DecodePiece& p_;
  int rank_, bits_, groups_;
  float* values_;
  float2* states_;
};

// Leaves this block's share; the last of the unit's parts joins them in order.
template <class S>
__device__ __forceinline__ void cluster_join(const AttentionArgs& a, const DecodePiece& p, const ClusterShare<S>& share,
                                             int rank, int* shared_last) {
  share.each([&](int i, int query, int) { share.slot(p.range)[i] = share.joined(i, query); });
  computing_sync();
  if (threadIdx.x == 0) {
    int* counter = a.decode_counters + p.head * a.decode_cluster + rank;
    __threadfence();  // what the others wrote before the barrier is also ahead of this
    const bool last = atomicAdd(counter, 1) == p.parts - 1;
    __threadfence();
    if (last) *counter = 0;  // for the next layer
    *shared_last = last;
  }
  computing_sync();
  if (*shared_last == 0) return;
  share.each([&](int i, int query, int column) {
    float m = -INFINITY, l = 0.0f, v = 0.0f;
#pragma unroll 4
    for (int part = 0; part < p.parts; ++part) {
      const float4 x = __ldcg(share.slot(p.head + part) + i);
      const JoinFactors f = join_factors(m, x.y);
      m = f.m, v = join(v, x.x, f), l = join(l, x.z, f);
    }
    store_out(a, p.u, query, column, v, l);
  });
}

// The tiles of the item that are this block's.
__device__ __forceinline__ DecodePiece cluster_piece(const AttentionArgs& a, int item, int rank) {
  const DecodeItem x = decode_item_at(a, item);
  DecodePiece p;
  p.u = decode_unit_of(a, x.row, x.unit, x.context, x.start, x.queries);
  const int to = min(x.to, decode_tile_count(p.u.most())), tiles = max(0, to - x.from), up = a.decode_cluster - 1;
  // What does not come out even goes to the first: the last one may have the newest key to make.
  p.from = x.from + (tiles * rank + up) / a.decode_cluster,
  p.to = x.from + (tiles * (rank + 1) + up) / a.decode_cluster;
  p.known = x.context - x.queries;
  p.range = item, p.head = item - x.part, p.parts = x.parts;
  return p;
}

// decode_early: as in decode_kernel.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    decode_cluster_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ DecodeMaps maps) {
  extern __shared__ char memory[];
  let_next_start();
  const DecodeShared<S> sh(memory);
  decode_begin<S>(sh, maps);
  cluster_arrive_relaxed();
  if (!a.decode_early) wait_for_previous();
  const int item = static_cast<int>(blockIdx.x) / a.decode_cluster, rank = cluster_rank();
  if (item >= a.decode_plan[0]) {
    cluster_wait();
    if (item == 0) wait_for_previous();  // somebody has to; others make room
    return;
  }
  const DecodePiece p = cluster_piece(a, item, rank);
  DecodePlace<S> at;
  if (threadIdx.x >= 128) {
    bool waited = decode_waited(a);
    decode_producer<S>(a, maps, p, sh, at, waited);
    __syncwarp();
    cluster_wait();
    cluster_arrive_relaxed();
    return cluster_wait();
  }
  bring_parameters(a);
  if (a.decode_early) wait_for_previous();
  DecodeState<S> total;
  total.clear();
  int turn = 0;
  decode_tiles<S>(a, p, sh, at, turn, [&](int, const DecodeState<S>& tile) { total.add(tile); });
  const ClusterShare<S> share(a, p, sh, rank);
  __syncwarp();
  cluster_wait();  // all blocks of the cluster have begun
  share.send(total, p.from >= p.to);
  __syncwarp();
  cluster_arrive();
  cluster_wait();
  if (p.parts > 1) return cluster_join<S>(a, p, share, rank, sh.last);
  share.each([&](int i, int query, int column) {
    const float4 x = share.joined(i, query);
    store_out(a, p.u, query, column, x.x, x.z);
  });
}

}  // namespace
}  // namespace tern::cuda
