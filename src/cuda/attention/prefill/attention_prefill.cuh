// Attention of long rows on Hopper, in the manner of FlashAttention-3 (arXiv 2407.08608): warps of their own feed keys
// and values through the copy engine, warpgroups have 64 queries each, and in each the next scores are computed under
// the softmax of the last. A query's chain of operations is the same whatever else is in its unit.
#pragma once

#include "cuda/attention/prefill/attention_prefill_producer.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace tern::cuda {
namespace {

// What a thread knows of its two queries.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, alpha[2];
};

// Scores become weights; alpha is what older sums are scaled by. Columns of this thread: 8 j + 2 (lane % 4) + 0, 1.
// `left`: how many of the tile's keys each query sees.
template <bool kMasked, int kValues>
__device__ __forceinline__ void weigh(float (&s)[kValues], Softmax& x, float scale, const int (&left)[2]) {
  constexpr int kColumns = kValues / 4;
  const int column = (threadIdx.x & 3) * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if constexpr (kMasked) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (8 * j >= left[r] - column) s[4 * j + 2 * r] = -INFINITY;
        if (8 * j + 1 >= left[r] - column) s[4 * j + 2 * r + 1] = -INFINITY;
      }
    }
    float most[4] = {x.top[r], -INFINITY, -INFINITY, -INFINITY};  // four chains hide the latency of one
#pragma unroll
    for (int j = 0; j < kColumns; ++j) most[j % 4] = fmaxf(most[j % 4], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    float top = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float base = top == -INFINITY ? 0.0f : top * scale;
    // Exactly one where nothing greater came: a tile that is masked for a query must leave its bits alone.
    x.alpha[r] = top == x.top[r] ? 1.0f : power2(__fmaf_rn(x.top[r], scale, -base));
    x.top[r] = top;
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      float& first = s[4 * j + 2 * r];
      float& second = s[4 * j + 2 * r + 1];
      first = power2(__fmaf_rn(first, scale, -base));
      second = power2(__fmaf_rn(second, scale, -base));
      sums[j % 4] += first + second;
    }
    const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    x.sum[r] = __fmaf_rn(x.sum[r], x.alpha[r], sum);
  }
}

// What stands behind the context in its last block may be anything, NaN too: times a weight of zero it must be zero.
template <class C>
__device__ __noinline__ void clear_tail(char* v, int rows, int group) {
  constexpr int kChunks = C::kHalves * 8;
  for (int i = threadIdx.x % 128; i < (C::kKeys - rows) * kChunks; i += 128) {
    const int row = rows + i / kChunks, chunk = i % kChunks;
    *reinterpret_cast<uint4*>(v + chunk / 8 * C::kHalfBytes + row * 128 + chunk % 8 * 16) = uint4{0, 0, 0, 0};
  }
  shared_to_engine();
  group_sync(1 + group, 128);
}

// What a part of a unit leaves in `slots`: m and l of its queries, then their sums.
template <class C>
constexpr int64_t kPartFloats = int64_t{C::kQueries} * (2 + C::kN);

// One warpgroup: 64 queries of each unit. kParts: units may be in parts of their keys.
template <class C, bool kParts>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const AttentionArgs& a, const Rings& rings)
      : a_(a), rings_(rings), group_(static_cast<int>(threadIdx.x) / 128 - 1), leader_(threadIdx.x % 128 == 0) {}

  __device__ __forceinline__ void run() {
    if (group_ == C::kGroups - 1) group_arrive(kTurn, 256);  // the first turn is the first group's
    for (Place<kUnits> unit;; unit.next()) {
      barrier_wait(&rings_.unit.full[unit.stage], unit.phase);
      const AttentionUnit& u = rings_.unit_at(unit.stage);
      if (u.row < 0) return;
      barrier_wait(&rings_.q.full[q_.stage], q_.phase);
      if (group_ * 64 < u.queries()) {
        attend(u);
      } else {
        stand_by(u);
      }
      group_sync(1 + group_, 128);  // without it registers are spilled
      barrier_arrive(&rings_.unit.free[unit.stage]);
    }
  }

 private:
  static constexpr int kTurn = 5;  // the first of kGroups barriers
  // Warpgroups give the tensor cores their work in turns, so that one weighs scores under the products of the others.
  __device__ __forceinline__ void take_turn() { group_sync(kTurn + group_, 256); }
  __device__ __forceinline__ void give_turn() { group_arrive(kTurn + (group_ + 1) % C::kGroups, 256); }
  __device__ __forceinline__ void done(const Ring& ring, Place<C::kStages>& at) {
    if (leader_) barrier_arrive(&ring.free[at.stage]);
    at.next();
  }
  __device__ __forceinline__ void done_queries() {
    if (leader_) barrier_arrive(&rings_.q.free[q_.stage]);
    q_.next();
  }

  __device__ __forceinline__ void score() {
    barrier_wait(&rings_.k.full[k_.stage], k_.phase);
    const char *q = rings_.q.data + q_.stage * C::kQueryBytes, *k = rings_.k.data + k_.stage * C::kKeyBytes;
    const uint64_t dq = tile_descriptor(shared_address(q + group_ * 64 * 128));
    const uint64_t dk = tile_descriptor(shared_address(k));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kWhole * 4 && i < C::kD / 16; ++i) {
      Wgmma<C::kKeys>::run(s_, dq + i / 4 * (C::kQueryHalf >> 4) + i % 4 * 2,
                           dk + i / 4 * (C::kHalfBytes >> 4) + i % 4 * 2, i > 0);
    }
    if constexpr (C::kTail) {
      Wgmma<C::kKeys>::run(s_, narrow_descriptor(shared_address(q + C::kWhole * C::kQueryHalf + group_ * 64 * 32)),
                           narrow_descriptor(shared_address(k + C::kWhole * C::kHalfBytes)), true);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void mix(const char* values) {
    const uint64_t dv = column_descriptor(shared_address(values), C::kHalfBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kKeys / 16; ++i) {
      WgmmaRegisters<C::kN>::run(o_, p_[4 * i], p_[4 * i + 1], p_[4 * i + 2], p_[4 * i + 3], dv + i * (16 * 128 >> 4));
    }
    wgmma_commit();
  }
  __device__ __forceinline__ char* values() { return rings_.v.data + v_.stage * C::kTileBytes; }

  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < C::kKeys / 4; ++i) p_[i] = pack2(s_[2 * i], s_[2 * i + 1]);
  }

  // Scores of tile t, and the sums of the tile before under their softmax.
  template <bool kMasked>
  __device__ __forceinline__ void step(int t, const int (&visible)[2], Softmax& x) {
    take_turn();
    score();
    barrier_wait(&rings_.v.full[v_.stage], v_.phase);
    mix(values());
    give_turn();
    wgmma_wait<1>();
    done(rings_.k, k_);
    const int left[2] = {visible[0] - t * C::kKeys, visible[1] - t * C::kKeys};
    weigh<kMasked>(s_, x, a_.scale_log2, left);
    wgmma_wait<0>();
    done(rings_.v, v_);
    pack();
    // As good as never after the first tiles.
    if (!__any_sync(0xffffffffu, x.alpha[0] != 1.0f || x.alpha[1] != 1.0f)) return;
#pragma unroll
    for (int j = 0; j < C::kN / 8; ++j) {
      o_[4 * j] *= x.alpha[0], o_[4 * j + 1] *= x.alpha[0];
      o_[4 * j + 2] *= x.alpha[1], o_[4 * j + 3] *= x.alpha[1];
    }
  }

  __device__ __forceinline__ void attend(const AttentionUnit& u) {
    const int all = u.tiles(C::kKeys), most = u.keys, begin = kParts ? u.first_tile(all) : 0;
    const int tiles = kParts ? u.end_tile(all) : all;
    const int open =  // tiles that all see end here
        min(tiles, (u.causal ? min(u.context, u.position0 + 1) : u.context) / C::kKeys);
    const int row = group_ * 64 + threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;
    const int visible[2] = {max(u.visible(row), 1), max(u.visible(row + 8), 1)};
    Softmax x;
#pragma unroll
    for (int i = 0; i < C::kN / 2; ++i) o_[i] = 0.0f;
    take_turn();
    score();
    give_turn();
    wgmma_wait<0>();
    done(rings_.k, k_);
    const int left[2] = {visible[0] - begin * C::kKeys, visible[1] - begin * C::kKeys};
    if (begin < open) {
      weigh<false>(s_, x, a_.scale_log2, left);
    } else {
      weigh<true>(s_, x, a_.scale_log2, left);
    }
    pack();
    int t = begin + 1;
    for (; t < open; ++t) step<false>(t, visible, x);
    for (; t < tiles; ++t) step<true>(t, visible, x);
    done_queries();
    barrier_wait(&rings_.v.full[v_.stage], v_.phase);
    if (tiles == all && most % C::kKeys != 0) clear_tail<C>(values(), most % C::kKeys, group_);
    mix(values());
    wgmma_wait<0>();
    done(rings_.v, v_);
    if (kParts && u.segments > 1) {
      epilogue(u, row, x);
    } else {
      store(u, row, x);
    }
  }

  // The same walk without queries.
  __device__ __forceinline__ void stand_by(const AttentionUnit& u) {
    const int all = u.tiles(C::kKeys), tiles = kParts ? u.end_tile(all) - u.first_tile(all) : all;
    for (int t = 0; t < tiles; ++t) {
      take_turn();
      give_turn();
      barrier_wait(&rings_.k.full[k_.stage], k_.phase);
      done(rings_.k, k_);
      barrier_wait(&rings_.v.full[v_.stage], v_.phase);
      done(rings_.v, v_);
    }
    done_queries();
  }

  __device__ __forceinline__ void epilogue(const AttentionUnit& u, int first_row, Softmax& x) {
    float* slot = a_.slots + u.slot * kPartFloats<C>;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      x.sum[r] += __shfl_xor_sync(0xffffffffu, x.sum[r], 1);
      x.sum[r] += __shfl_xor_sync(0xffffffffu, x.sum[r], 2);
      const int row = first_row + 8 * r;
      if (row >= u.queries()) continue;
      if (threadIdx.x % 4 == 0) slot[row] = x.top[r] * a_.scale_log2, slot[C::kQueries + row] = x.sum[r];
      float* to = slot + 2 * C::kQueries + row * C::kN + (threadIdx.x & 3) * 2;
#pragma unroll
      for (int j = 0; j < C::kN / 8; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) = make_float2(o_[4 * j + 2 * r], o_[4 * j + 2 * r + 1]);
      }
    }
  }

  __device__ __forceinline__ void store(const AttentionUnit& u, int first_row, Softmax& x) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      x.sum[r] += __shfl_xor_sync(0xffffffffu, x.sum[r], 1);
      x.sum[r] += __shfl_xor_sync(0xffffffffu, x.sum[r], 2);
      const int row = first_row + 8 * r;
      if (row >= u.queries()) continue;
      const float factor = x.sum[r] > 0.0f || x.sum[r] != x.sum[r] ? 1.0f / x.sum[r] : 0.0f;
      const int64_t at =
          (u.token0 + row / u.heads) * a_.out_token + (u.head0 + row % u.heads) * a_.out_head + (threadIdx.x & 3) * 2;
#pragma unroll
      for (int j = 0; j < C::kN / 8; ++j) {
        if (8 * j >= a_.dv) break;
        const float first = o_[4 * j + 2 * r] * factor, second = o_[4 * j + 2 * r + 1] * factor;
        if (a_.out_f32) {
          *reinterpret_cast<float2*>(static_cast<float*>(a_.out) + at + 8 * j) = make_float2(first, second);
        } else {
          *reinterpret_cast<uint32_t*>(static_cast<bf*>(a_.out) + at + 8 * j) = pack2(first, second);
        }
      }
    }
  }

  const AttentionArgs& a_;
  const Rings& rings_;
  const int group_;
  const bool leader_;
  Place<C::kPlaces> q_;
  Place<C::kStages> k_, v_;
  float s_[C::kKeys / 2], o_[C::kN / 2];
  uint32_t p_[C::kKeys / 4];
};

template <class C, bool kPaged, bool kParts>
__global__ void __launch_bounds__(C::kThreads, 1)
    long_rows_kernel(const AttentionArgs a, const __grid_constant__ LongMaps maps) {
  extern __shared__ char memory[];
  const Rings rings = make_rings<C>(memory);
  if (threadIdx.x == 0) prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
  __syncthreads();
  let_next_start();
  wait_for_previous();
  if (threadIdx.x < 128) {
    registers_down<C::kGroups == 2 ? 40 : 32>();
    if (threadIdx.x < 32) {
      produce<C, kPaged, kParts, false>(a, maps, rings);
    } else if (threadIdx.x < 64) {
      produce<C, kPaged, kParts, true>(a, maps, rings);
    } else if (threadIdx.x == 64) {
      deal<C, kParts>(a, rings);
    }
  } else {
    registers_up<C::kGroups == 2 ? 232 : 160>();
    Consumer<C, kParts>(a, rings).run();
  }
}

// Joins the parts of units in ascending order of their keys. A warp per query. `blocks`: of the kernel before.
template <class C>
__global__ void __launch_bounds__(256) long_join_kernel(const AttentionArgs a, int blocks) {
  let_next_start();
  wait_for_previous();
  const Deal work(a, blocks, 1, C::kKeys);
  const int lane = threadIdx.x & 31, warps = static_cast<int>(gridDim.x) * 8;
  constexpr int kOwn = C::kN / 32;
  for (int i = static_cast<int>(blockIdx.x) * 8 + threadIdx.x / 32; i < work.items() * C::kQueries; i += warps) {
    const AttentionUnit u = work.part(i / C::kQueries, 0);
    const int row = i % C::kQueries;
    if (u.segments == 1 || row >= u.queries()) continue;
    float m = -INFINITY, l = 0.0f, v[kOwn] = {};
#pragma unroll 4
    for (int s = 0; s < u.segments; ++s) {
      const float* slot = a.slots + (u.slot + s) * kPartFloats<C>;
      const float top = __ldcg(slot + row), sum = __ldcg(slot + C::kQueries + row);
      const JoinFactors f = join_factors(m, top);
      m = f.m, l = join(l, sum, f);
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        v[k] = join(v[k], __ldcg(slot + 2 * C::kQueries + row * C::kN + k * 32 + lane), f);
      }
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) store_out(a, u, row, k * 32 + lane, v[k], l);
  }
}

template <class C, bool kPaged, bool kParts>
Status launch_long_rows(const char* name, const AttentionArgs& a, const LongMaps& maps, device::Stream stream) {
  const auto blocks = static_cast<unsigned>(state(stream).multiprocessors);
  const Shape shape{dim3(blocks), dim3(C::kThreads), C::kBytes};
  const Status s = launch(stream, name, shape, long_rows_kernel<C, kPaged, kParts>, a, maps);
  if constexpr (kParts) {
    if (s.ok()) return launch(stream, name, {blocks, 256}, long_join_kernel<C>, a, static_cast<int>(blocks));
  }
  return s;
}

}  // namespace
}  // namespace tern::cuda
