// A chain's kernel (chain.h, chain.cuh): the products, and how the blocks wait for each other.
#include "cuda/fusion/chain.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

// A warp's 64 values of k in two halves; a lane has eight of each. The order of k inside a step of the tensor cores is
// free as long as both sides have the same.
__device__ __forceinline__ int lane_k(int warp, int half) {
  return 64 * warp + 32 * half + static_cast<int>(threadIdx.x) % 4 * 8;
}

// A warp's piece of x, which is one of the eight tokens that the tensor cores take.
struct ChainX {
  uint4 v[2];

  // `width`: values of k there are from k on.
  __device__ __forceinline__ void load(const ChainProduct& p, const bf* normed, int k, int width) {
    const int warp = threadIdx.x / 32, token = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = lane_k(warp, i);
      v[i] = make_uint4(0, 0, 0, 0);
      if (token > 0 || at >= width) continue;
      v[i] = p.x == nullptr ? *reinterpret_cast<const uint4*>(normed + k + at)
                            : __ldcg(reinterpret_cast<const uint4*>(static_cast<const bf*>(p.x) + k + at));
    }
  }
};

// A warp's piece of a slot: eight rows of the unit and the eight others. Rows lie 512 bytes apart: odd ones read the
// halves of k the other way round, so that no two lanes meet in a bank.
struct ChainW {
  uint4 v[2][2];  // [eight rows][half of k]
  __device__ __forceinline__ void load(const char* slot) {
    const int warp = threadIdx.x / 32, row = static_cast<int>(threadIdx.x) % 32 / 4;
    const bool even = row % 2 == 0;
    const int first = lane_k(warp, even ? 0 : 1), second = lane_k(warp, even ? 1 : 0);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const char* from = slot + first / 256 * kBoxBytes + (8 * j + row) * 512;
      const uint4 a = *reinterpret_cast<const uint4*>(from + first % 256 * 2);
      const uint4 b = *reinterpret_cast<const uint4*>(from + second % 256 * 2);
      v[j][0] = choose(even, a, b), v[j][1] = choose(even, b, a);
    }
  }
};

// sums[16 rows, 8 tokens] += w x^T over one half of a warp's k: `w0` eight rows of the unit, `w1` the others.
__device__ __forceinline__ void multiply(float (&sums)[4], const uint4& w0, const uint4& w1, const uint4& x) {
  const uint32_t a0[4] = {w0.x, w1.x, w0.y, w1.y}, b0[2] = {x.x, x.y};
  const uint32_t a1[4] = {w0.z, w1.z, w0.w, w1.w}, b1[2] = {x.z, x.w};
  mma(sums, a0, b0);
  mma(sums, a1, b1);
}

__device__ __forceinline__ void store_value(const ChainProduct& p, int col, float v) {
  if (p.out_bf16) {
    static_cast<bf*>(p.out)[col] = from_float<bf>(v);
  } else {
    static_cast<float*>(p.out)[col] = v;
  }
}

// What follows the sums of a unit: of row `row` of its first eight and of the same one of the others.
__device__ __forceinline__ void finish(const ChainProduct& p, int unit, int row, float v, float u) {
  const int col = unit * (p.gated ? 8 : 16) + row;
  const int other = p.gated ? p.n / 2 + col : col + 8;
  if (p.bias != nullptr) v += p.bias[col], u += p.bias[other];
  if (p.gated) return store_value(p, col, silu(v) * u);
  store_value(p, col, v);
  store_value(p, other, u);
}

// The warps' sums of `units` units from `begin` on, added in the order of k: a thread two rows.
__device__ __forceinline__ void join_sums(const ChainProduct& p, int begin, int units, const float (&sums)[kGroup][4],
                                          ChainShared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
#pragma unroll
  for (int u = 0; u < kGroup; ++u) {
    if (u >= units) break;
    if (lane % 4 == 0) s.join[warp][u][lane / 4] = make_float2(sums[u][0], sums[u][2]);
  }
  hopper::group_sync(1, kChainGroup);
  const int unit = static_cast<int>(threadIdx.x) / 8, row = static_cast<int>(threadIdx.x) % 8;
  if (unit < units) {
    float2 v{};
#pragma unroll
    for (int share = 0; share < kChainWarps; ++share) {
      const float2 part = s.join[share][unit][row];
      v.x += part.x, v.y += part.y;
    }
    finish(p, begin + unit, row, v.x, v.y);
  }
  hopper::group_sync(1, kChainGroup);
}

// The next slot of the ring, as soon as it is there.
__device__ __forceinline__ void take_slot(ChainW& w, RingPlace& place, ChainShared& s) {
  hopper::barrier_wait(&s.full[place.slot], place.parity);
  w.load(s.slots[place.slot]);
  __syncwarp();
  if ((threadIdx.x & 31) == 0) hopper::barrier_arrive(&s.empty[place.slot]);
  place.next();
}

__device__ void product_step(const ChainProduct& p, RingPlace& place, ChainShared& s) {
  const ChainShare share = share_of(p);
  const int warp = threadIdx.x / 32;
  for (int begin = share.first; begin < share.last; begin += kGroup) {
    const int units = min(kGroup, share.last - begin);
    float sums[kGroup][4] = {};
    ChainX x, next;
    next.load(p, s.normed, 0, p.k);
    for (int k = 0; k < p.k; k += kChunk) {
      x = next;
      const int width = p.k - k;
      if (width > kChunk) next.load(p, s.normed, k + kChunk, width - kChunk);
      ChainW coming;
      take_slot(coming, place, s);
#pragma unroll
      for (int u = 0; u < kGroup; ++u) {
        if (u >= units) break;
        const ChainW w = coming;
        if (u + 1 < units) take_slot(coming, place, s);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (64 * warp + 32 * i >= width) continue;  // the ring may hold old values there
          multiply(sums[u], w.v[0][i], w.v[1][i], x.v[i]);
        }
      }
    }
    join_sums(p, begin, units, sums, s);
  }
}

// All blocks have done step `i` - 1; what they wrote may be read from here on.
__device__ __forceinline__ void wait_for_step(const ChainArgs& a, int i) {
  if (threadIdx.x == 0) {
    uint32_t done = 0;
    while (done < gridDim.x) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(done) : "l"(a.counters + i - 1) : "memory");
    }
  }
  hopper::group_sync(1, kChainGroup);
}

__device__ __forceinline__ void step_done(const ChainArgs& a, int i) {
  hopper::group_sync(1, kChainGroup);
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(a.counters + i) : "memory");
  }
}

// The last block to leave puts the counters back: nobody waits for them any more.
__device__ __forceinline__ void end_chain(const ChainArgs& a) {
  if (threadIdx.x != 0) return;
  uint32_t* leaving = a.counters + kChainSteps;
  if (atomicAdd(leaving, 1u) + 1 != gridDim.x) return;
  for (int i = 0; i <= kChainSteps; ++i) a.counters[i] = 0;
}

__global__ void __launch_bounds__(kChainThreads, 1) chain_kernel(const __grid_constant__ ChainArgs a) {
  extern __shared__ char memory[];
  ChainShared& s = *reinterpret_cast<ChainShared*>(memory);
  let_next_start();
  if (threadIdx.x < kChainGroup) prefetch_chain(a);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      hopper::barrier_init(&s.full[i], 1);
      hopper::barrier_init(&s.empty[i], kChainWarps);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  if (threadIdx.x >= kChainGroup) {
    if (threadIdx.x == kChainGroup) fill_ring(a, s);
    return;
  }
  wait_for_previous();
  RingPlace place;
  for (int i = 0; i < a.count; ++i) {
    const ChainStep& step = a.steps[i];
    if (i > 0) wait_for_step(a, i);
    if (step.norm.width > 0) norm_step(step.norm, step.product.n > 0, s);
    if (step.product.n > 0) product_step(step.product, place, s);
    if (i + 1 < a.count) step_done(a, i);
  }
  end_chain(a);
}

}  // namespace

Status launch_chain(const Chain& chain, device::Stream stream) {
  const StreamState& on = state(stream);
  ChainArgs args{};
  args.count = chain.count, args.counters = on.tickets;
  for (int i = 0; i < chain.count; ++i) {
    args.steps[i] = chain.steps[i];
    const ChainProduct& p = chain.steps[i].product;
    if (p.n > 0) TERN_RETURN_IF_ERROR(tensor_map_wide(p.weight, p.n, p.k, p.w_row, p.gated, &args.maps[i]));
  }
  return launch(stream, "chain", {static_cast<unsigned>(on.multiprocessors), kChainThreads, sizeof(ChainShared)},
                chain_kernel, args);
}

}  // namespace tern::cuda
