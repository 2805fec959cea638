// Decode attention with few units on Hopper in deterministic mode: a cluster of 2 to 8 blocks has a unit, as in
// attention_decode_cluster.cuh, but its sums are joined in the order of attention_decode_deterministic.cuh. A block
// takes whole rounds, or whole segments of longer contexts, and leaves the state of each in its shared memory; every
// block then reads its share (some queries' columns) of all of them and goes through them first to last. What a unit is
// made of follows from places in its context alone, so its bits are those of ranges: of any number of rows, and of
// prompts.
//
// Where a unit is too long for that the plan says so, and the blocks have ranges instead.
#pragma once

#include "cuda/attention/decode/attention_decode_cluster.cuh"
#include "cuda/attention/decode/attention_decode_deterministic.cuh"

namespace tern::cuda {
namespace {

inline constexpr int kDeterministicNodes = 2;  // of a block

template <class S>
struct DeterministicShape {
  static constexpr int kQueries = 8 * S::kN, kPitch = S::kD + 4;  // floats of a query, padded against banks
  static constexpr int kNode = kQueries * (kPitch + 2);           // sums, then m and l
  static constexpr size_t kBytes = S::kBytes + sizeof(float) * kDeterministicNodes * kNode;
};

__device__ __forceinline__ float cluster_load(uint32_t from) {
  float x;
  asm volatile("ld.shared::cluster.f32 %0, [%1];\n" : "=f"(x) : "r"(from) : "memory");
  return x;
}
__device__ __forceinline__ float2 cluster_load2(uint32_t from) {
  float2 x;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];\n" : "=f"(x.x), "=f"(x.y) : "r"(from) : "memory");
  return x;
}

// How the tiles of a unit lie in the blocks of its cluster: nodes of `step` tiles, 1 << bits of them in each.
struct DeterministicCut {
  int tiles, step, nodes, bits;
  __device__ DeterministicCut(const AttentionArgs& a, int tiles) : tiles(tiles) {
    const int most = a.decode_nodes * a.decode_cluster;
    step = tiles <= most * kDecodeRound ? kDecodeRound : kDecodeSegment;
    nodes = (tiles + step - 1) / step, bits = nodes > a.decode_cluster ? 1 : 0;
  }
  __device__ int begin(int rank) const { return min(tiles, (rank << bits) * step); }
};
static_assert(kDeterministicNodes == 2);

// One column of a state; add() is DecodeState's.
struct DeterministicSum {
  float m = -INFINITY, l = 0.0f, v = 0.0f;
  __device__ __forceinline__ void add(const DeterministicSum& y) {
    const JoinFactors f = join_factors(m, y.m);
    const bool first = m == -INFINITY, none = y.m == -INFINITY;
    const float both_l = join(l, y.l, f), both_v = join(v, y.v, f);
    l = none ? l : first ? y.l : both_l, v = none ? v : first ? y.v : both_v, m = f.m;
  }
};

// The nodes of a block, in its shared memory behind all else.
template <class S>
class DeterministicStates {
 public:
  __device__ DeterministicStates(const AttentionArgs& a, const DecodePiece& p, const DecodeShared<S>& sh)
      : a_(a), p_(p), sums_(reinterpret_cast<float*>(sh.last + 4)) {}
  __device__ __forceinline__ void epilogue(int i, const DecodeState<S>& s) const {
    const int lane = threadIdx.x & 31, queries = p_.u.queries();
    float* to = sums_ + i * T::kNode;
#pragma unroll
    for (int q = 0; q < 2 * S::kN; ++q) {
      const int query = q / 2 * 8 + lane % 4 * 2 + q % 2;
      if (query >= queries) continue;
#pragma unroll
      for (int r = 0; r < 2 * S::kRows; ++r) {
        to[query * T::kPitch + S::column(threadIdx.x, r / 2, r % 2)] = s.v[r / 2][q / 2][r % 2 * 2 + q % 2];
      }
      if (threadIdx.x < 4) *state(to, query) = make_float2(s.m[q], s.l[q]);
    }
  }
  // This block's share of the result: of the groups of 32 columns of all queries every a.decode_cluster-th.
  __device__ __forceinline__ void join_all(const DeterministicCut& cut, int rank) const {
    constexpr int kGroups = S::kD / 32;
    const int lane = threadIdx.x & 31, step = a_.decode_cluster * 4;
    for (int g = rank + a_.decode_cluster * (threadIdx.x / 32); g < p_.u.queries() * kGroups; g += step) {
      const int query = g / kGroups, column = g % kGroups * 32 + lane;
      const DeterministicSum y = joined(cut, query, column);
      store_out(a_, p_.u, query, column, y.v, y.l);
    }
  }

 private:
  using T = DeterministicShape<S>;
  __device__ __forceinline__ float2* state(float* node, int query) const {
    return reinterpret_cast<float2*>(node + T::kQueries * T::kPitch) + query;
  }
  __device__ __forceinline__ DeterministicSum joined(const DeterministicCut& cut, int query, int column) const {
    constexpr int kTogether = 4;  // loads under way; a segment has as many rounds
    DeterministicSum segment, total;
    for (int i0 = 0; i0 < cut.nodes; i0 += kTogether) {
      DeterministicSum y[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (i0 + i >= cut.nodes) continue;
        const int rank = (i0 + i) >> cut.bits, node = (i0 + i) - (rank << cut.bits);
        float* from = sums_ + node * T::kNode;
        const float2 s = cluster_load2(cluster_address(state(from, query), rank));
        y[i] = {s.x, s.y, cluster_load(cluster_address(from + query * T::kPitch + column, rank))};
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (cut.step == kDecodeRound) {
          segment.add(y[i]);
        } else {
          total.add(y[i]);
        }
      }
      if (cut.step == kDecodeRound) total.add(segment), segment = {};
    }
    return total;
  }
  const AttentionArgs& a_;
  const DecodePiece& p_;
  float* sums_;
};
static_assert(kDecodeSegment / kDecodeRound == 4);

// The tiles of a block of the cluster, one node after the other.
template <class S>
__device__ __forceinline__ void deterministic_tiles(const AttentionArgs& a, const DecodePiece& p,
                                                    const DecodeShared<S>& sh, const DeterministicCut& cut,
                                                    const DeterministicStates<S>& states) {
  DecodePlace<S> at;
  DecodeState<S> round, segment;
  round.clear(), segment.clear();
  int turn = 0, node = 0;
  decode_tiles<S>(a, p, sh, at, turn, [&](int t, const DecodeState<S>& tile) {
    round.add(tile);
    const bool last = t + 1 == p.to;
    if (!last && (t + 1) % kDecodeRound != 0) return;
    if (cut.step == kDecodeRound) {
      states.epilogue(node++, round);
    } else {
      segment.add(round);
      if (last || (t + 1) % kDecodeSegment == 0) states.epilogue(node++, segment), segment.clear();
    }
    round.clear();
  });
}

// decode_early: as in decode_kernel.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    decode_deterministic_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ DecodeMaps maps) {
  extern __shared__ char memory[];
  let_next_start();
  const DecodeShared<S> sh(memory);
  decode_begin<S>(sh, maps);
  if (!a.decode_early) wait_for_previous();
  if (a.decode_plan[1] != 0) return decode_range<S>(a, maps, sh);
  const int item = static_cast<int>(blockIdx.x) / a.decode_cluster, rank = cluster_rank();
  if (item >= a.decode_plan[0]) return wait_for_previous();  // the whole cluster
  const DecodeItem x = decode_item_at(a, item);
  DecodePiece p;
  p.u = decode_unit_of(a, x.row, x.unit, x.context, x.start, x.queries);
  const DeterministicCut cut(a, min(x.to, decode_tile_count(p.u.most())));
  p.from = cut.begin(rank), p.to = cut.begin(rank + 1), p.known = x.context - x.queries;
  if (threadIdx.x >= 128) {
    DecodePlace<S> at;
    bool waited = decode_waited(a);
    decode_producer<S>(a, maps, p, sh, at, waited);
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    cluster_arrive_relaxed();
    return cluster_wait();
  }
  if (a.decode_early) wait_for_previous();
  const DeterministicStates<S> states(a, p, sh);
  deterministic_tiles<S>(a, p, sh, cut, states);
  __syncwarp();
  cluster_arrive();
  cluster_wait();  // all nodes of the unit are there
  states.join_all(cut, rank);
  __syncwarp();
  cluster_arrive_relaxed();
  cluster_wait();  // nobody leaves while others read
}

}  // namespace
}  // namespace tern::cuda
