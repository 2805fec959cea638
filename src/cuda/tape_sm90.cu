// A tape's kernel (tape.h, tape.cuh): the products, and how the blocks wait for each other.
#include "cuda/tape.cuh"

namespace tern::cuda {
namespace {

// A warp's piece of x: values [k, k + 8) of its lane's tokens for each of its pairs. The order of k inside a step of
// the tensor cores is free as long as the weight has the same.
template <int kTokens>
struct TapeX {
  using Shape = TapeShape<kTokens>;
  uint4 v[Shape::kPairs][Shape::kHalves];

  // `width`: values of k there are from k on.
  __device__ __forceinline__ void load(const TapeProduct& p, const bf* normed, int rows, int k, int width) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int token0 = warp % Shape::kTall * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < Shape::kPairs; ++i) {
      const int at = 32 * (warp / Shape::kTall + Shape::kShares * i) + lane % 4 * 8;
#pragma unroll
      for (int h = 0; h < Shape::kHalves; ++h) {
        const int token = token0 + 8 * h;
        v[i][h] = make_uint4(0, 0, 0, 0);
        if (token >= rows || at >= width) continue;
        if (kTokens == 8 && p.x == nullptr) {
          v[i][h] = *reinterpret_cast<const uint4*>(normed + token * (p.k + 32) + k + at);
        } else {
          v[i][h] = __ldcg(reinterpret_cast<const uint4*>(static_cast<const bf*>(p.x) + token * p.x_row + k + at));
        }
      }
    }
  }
};

// A warp's piece of a slot: eight values of one row of each tile, for each of its pairs.
template <int kTokens>
struct TapeW {
  using Shape = TapeShape<kTokens>;
  uint4 v[Shape::kSlotTiles][Shape::kPairs];

  __device__ __forceinline__ void load(const char* slot) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
#pragma unroll
    for (int j = 0; j < Shape::kSlotTiles; ++j) {
#pragma unroll
      for (int i = 0; i < Shape::kPairs; ++i) {
        const int at = 32 * (warp / Shape::kTall + Shape::kShares * i) + lane % 4 * 8;
        v[j][i] = *reinterpret_cast<const uint4*>(slot + (8 * j + lane / 4) * Shape::kPitch + at * 2);
      }
    }
  }
};

// sums[tokens, 8 rows] += x w^T over one pair.
template <int kHalves>
__device__ __forceinline__ void multiply(float (&sums)[4], const uint4 (&x)[kHalves], const uint4& w) {
  const uint4 upper = kHalves == 2 ? x[kHalves - 1] : make_uint4(0, 0, 0, 0);
  const uint32_t a0[4] = {x[0].x, upper.x, x[0].y, upper.y}, b0[2] = {w.x, w.y};
  const uint32_t a1[4] = {x[0].z, upper.z, x[0].w, upper.w}, b1[2] = {w.z, w.w};
  mma(sums, a0, b0);
  mma(sums, a1, b1);
}

// Two neighbouring values of a token's row.
__device__ __forceinline__ void store_pair(const TapeProduct& p, void* out, int token, int col, float2 v) {
  if (p.out_bf16) {
    *reinterpret_cast<uint32_t*>(static_cast<bf*>(out) + token * p.out_row + col) = pack2(v.x, v.y);
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(out) + token * p.out_row + col) = v;
  }
}

// What follows the sums of a tile; all lanes of a warp, two columns each.
__device__ __forceinline__ void finish(const TapeProduct& p, void* out, int tile, int token, int rows, float2 v) {
  const int q = threadIdx.x % 4;
  if (!p.gated) {
    const int col = tile * 8 + 2 * q;
    if (p.bias != nullptr) v.x += p.bias[col], v.y += p.bias[col + 1];
    if (token < rows) store_pair(p, out, token, col, v);
    return;
  }
  const int col = tile * 4 + 2 * (q & 1);
  if (p.bias != nullptr) {
    const float* bias = p.bias + (q < 2 ? 0 : p.n / 2) + col;
    v.x += bias[0], v.y += bias[1];
  }
  const float2 up = make_float2(__shfl_down_sync(0xffffffffu, v.x, 2), __shfl_down_sync(0xffffffffu, v.y, 2));
  if (q < 2 && token < rows) store_pair(p, out, token, col, make_float2(silu(v.x) * up.x, silu(v.y) * up.y));
}

// The warps' sums of tiles [begin, begin + tiles), added in the order of k.
template <int kTokens>
__device__ __forceinline__ void join_sums(const TapeProduct& p, void* out, int begin, int tiles, int rows,
                                          const float (&sums)[TapeShape<kTokens>::kGroup][4], TapeShared<kTokens>& s) {
  using Shape = TapeShape<kTokens>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  constexpr int kEights = kTokens / 8;
#pragma unroll
  for (int t0 = 0; t0 < Shape::kGroup; t0 += Shape::kJoin) {
    if (t0 >= tiles) break;
#pragma unroll
    for (int t = 0; t < Shape::kJoin; ++t) {
      if (t0 + t >= tiles) break;
#pragma unroll
      for (int h = 0; h < Shape::kHalves; ++h) {
        s.join[warp][t][h][lane] = make_float2(sums[t0 + t][2 * h], sums[t0 + t][2 * h + 1]);
      }
    }
    hopper::group_sync(1, kTapeTeam);
    for (int item = warp; item < min(Shape::kJoin, tiles - t0) * kEights; item += kTapeWarps) {
      const int t = item / kEights, eight = item % kEights;
      float2 v = make_float2(0, 0);
#pragma unroll
      for (int share = 0; share < Shape::kShares; ++share) {
        const float2 part = s.join[share * Shape::kTall + eight / 2 % Shape::kTall][t][eight % Shape::kHalves][lane];
        v.x += part.x, v.y += part.y;
      }
      finish(p, out, begin + t0 + t, eight * 8 + lane / 4, rows, v);
    }
    hopper::group_sync(1, kTapeTeam);
  }
}

template <int kTokens>
__device__ void product_step(const TapeProduct& p, int rows, RingPlace<TapeShape<kTokens>::kSlots>& place,
                             TapeShared<kTokens>& s) {
  using Shape = TapeShape<kTokens>;
  const TapeShare share = share_of(p);
  const bf* normed = reinterpret_cast<const bf*>(s.normed);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  void* out = static_cast<float*>(p.out) + share.part * p.part_stride;
  if (p.out_bf16) out = p.out;
  for (int begin = share.first; begin < share.last; begin += Shape::kGroup) {
    const int tiles = min(Shape::kGroup, share.last - begin);
    float sums[Shape::kGroup][4] = {};
    TapeX<kTokens> x, next;
    next.load(p, normed, rows, share.k_begin, share.k_end - share.k_begin);
    for (int k = share.k_begin; k < share.k_end; k += Shape::kChunk) {
      x = next;
      const int width = share.k_end - k;
      if (width > Shape::kChunk) next.load(p, normed, rows, k + Shape::kChunk, width - Shape::kChunk);
#pragma unroll
      for (int t = 0; t < Shape::kGroup; t += Shape::kSlotTiles) {
        if (t >= tiles) break;
        TapeW<kTokens> w;
        hopper::barrier_wait(&s.full[place.slot], place.parity);
        w.load(s.slots[place.slot]);
        __syncwarp();
        if (lane == 0) hopper::barrier_arrive(&s.empty[place.slot]);
        place.next();
#pragma unroll
        for (int i = 0; i < Shape::kPairs; ++i) {
          if (32 * (warp / Shape::kTall + Shape::kShares * i) >= width) continue;  // the ring holds old values there
#pragma unroll
          for (int j = 0; j < Shape::kSlotTiles; ++j) multiply(sums[t + j], x.v[i], w.v[j][i]);
        }
      }
    }
    join_sums<kTokens>(p, out, begin, tiles, rows, sums, s);
  }
}

// All blocks have done step `i` - 1; what they wrote may be read from here on.
__device__ __forceinline__ void wait_for_step(const TapeArgs& a, int i) {
  if (threadIdx.x == 0) {
    uint32_t done = 0;
    while (done < gridDim.x) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(done) : "l"(a.counters + i - 1) : "memory");
    }
  }
  hopper::group_sync(1, kTapeTeam);
}

__device__ __forceinline__ void step_done(const TapeArgs& a, int i) {
  hopper::group_sync(1, kTapeTeam);
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(a.counters + i) : "memory");
  }
}

// The last block to leave puts the counters back: nobody waits for them any more.
__device__ __forceinline__ void leave_tape(const TapeArgs& a) {
  if (threadIdx.x != 0) return;
  uint32_t* leaving = a.counters + kTapeSteps;
  if (atomicAdd(leaving, 1u) + 1 != gridDim.x) return;
  for (int i = 0; i <= kTapeSteps; ++i) a.counters[i] = 0;
}

template <int kTokens>
__global__ void __launch_bounds__(kTapeThreads, 1) tape_kernel(const __grid_constant__ TapeArgs a) {
  extern __shared__ char memory[];
  using Shape = TapeShape<kTokens>;
  TapeShared<kTokens>& s = *reinterpret_cast<TapeShared<kTokens>*>(memory);
  let_next_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kSlots; ++i) {
      hopper::barrier_init(&s.full[i], 1);
      hopper::barrier_init(&s.empty[i], kTapeWarps);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  if (threadIdx.x >= kTapeTeam) {
    feed_tape<kTokens>(a, s);
    return;
  }
  wait_for_previous();
  RingPlace<Shape::kSlots> place;
  for (int i = 0; i < a.count; ++i) {
    const TapeStep& step = a.steps[i];
    if (i > 0) wait_for_step(a, i);
    if (step.norm.width > 0) norm_step<kTokens>(step.norm, a.rows, step.product.n > 0, s);
    if (step.product.n > 0) product_step<kTokens>(step.product, a.rows, place, s);
    if (i + 1 < a.count) step_done(a, i);
  }
  leave_tape(a);
}

template <int kTokens>
Status launch_shape(const TapeArgs& args, const char* name, device::Stream stream) {
  static_assert(sizeof(TapeShared<kTokens>) <= 227 * 1024);
  static thread_local bool allowed = false;
  constexpr size_t kBytes = sizeof(TapeShared<kTokens>);
  if (!allowed) TERN_RETURN_IF_ERROR(allow_shared(name, tape_kernel<kTokens>, kBytes));
  allowed = true;
  const auto blocks = static_cast<unsigned>(state(stream).multiprocessors);
  return launch(stream, name, {blocks, kTapeThreads, kBytes}, tape_kernel<kTokens>, args);
}

}  // namespace

Status launch_tape(const TapeArgs& args, device::Stream stream) {
  if (args.rows <= 8) return launch_shape<8>(args, "tape_8", stream);
  if (args.rows <= 16) return launch_shape<16>(args, "tape_16", stream);
  return launch_shape<32>(args, "tape_32", stream);
}

}  // namespace tern::cuda
