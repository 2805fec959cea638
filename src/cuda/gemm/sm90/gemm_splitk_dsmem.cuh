// Products on Hopper of up to 64 rows whose k is cut over the blocks of a cluster, where waiting is what counts: the
// sums of gemm_wgmma_sm90.cu, but every block sends its part of a tile from registers straight to the blocks that add
// parts up, each of which has a share of the tile. What arrives completes on the receiver's mbarrier, as loads of the
// copy engine do. The one barrier of the cluster, that a block's landing zone may be written, is hidden behind the
// loads.
//
// A warp that is alone on its scheduler needs four cycles and more for an instruction: between the end of the kernel
// before and the last store of this one there are as few as can be. How k is cut is known to the compiler, scales of a
// norm are made by a warp of their own, addresses are there before the wait. Tokens come with the weights of their
// stage: products begin with what is there.
//
// The zone lies over the first stages of weights, and stages are taken in such an order that these are done with first.
// A block takes no more room than its steps need: blocks of the next kernels have their weights while this one runs.
// With a gate a tile's rows are 8 of gate and the 8 of up that belong to them, by turns: a thread holds both.
#pragma once

#include "cuda/gemm/gemm.h"
#include "cuda/ptx/hopper_units.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace tern::cuda {

template <int kTokens_>
struct SplitKTile {
  static constexpr int kTokens = kTokens_, kRows = 64, kBlocks = 3, kK = 64;
  // A warp copies, and one makes scales.
  static constexpr int kWorkers = 2 * kRows, kThreads = kWorkers + 64;
  static constexpr int kWeight = kRows * kK * 2, kX = kTokens * kK * 2;  // bytes of a stage
  static constexpr int kLanding = kTokens * kRows * 4;                   // bytes of the zone
  static constexpr int kQuads = kTokens / 8;                             // sums of a thread / 4
  static constexpr int kZone = (kLanding + kWeight - 1) / kWeight;       // stages of weights that it lies over
  static constexpr int kLeastDepth = kZone + 1, kMostDepth = 12;
  // Behind the last stage the products read as far as a whole tile's tokens.
  static constexpr int bytes(int stages, int x_bytes) { return 1024 + stages * (kWeight + x_bytes) + kX - x_bytes; }
  // Of the 228 KiB of a multiprocessor a block takes one for the system, and one for barriers and scales.
  static constexpr int room(int blocks) { return 228 * 1024 / blocks - 2048; }
  static_assert(bytes(kLeastDepth, kX) <= room(kBlocks));
  using Sums = float[kTokens / 2];
};

struct SplitKGrid {
  int k_tiles;
  int depth;    // stages of the ring
  int x_bytes;  // of a stage
};

// What a block computes: k tiles [first, first + steps) of the rows of the weight from tile * kRows on.
struct SplitKWork {
  int tile, rank, first, steps;
};

template <class Tile>
struct SplitKRing {
  char *weights, *tokens;
  uint64_t *full, *empty, *landed;
  int depth, begin;  // begin: the stage of the first step, such that the last step has the last stage
  uint32_t x_bytes;
  __device__ SplitKRing(char* memory, uint64_t* barriers, const SplitKGrid& grid, int steps)
      : full(barriers),
        empty(barriers + Tile::kMostDepth),
        landed(barriers + 2 * Tile::kMostDepth),
        depth(grid.depth),
        x_bytes(static_cast<uint32_t>(grid.x_bytes)) {
    const uint32_t at = hopper::shared_address(memory);
    weights = memory + ((at + 1023) / 1024 * 1024 - at), tokens = weights + depth * Tile::kWeight;
    begin = steps <= depth ? depth - steps : (depth - steps % depth) % depth;
  }
  __device__ char* weight(int s) const { return weights + s * Tile::kWeight; }
  __device__ char* x(int s) const { return tokens + s * x_bytes; }
  __device__ int next(int s) const { return s + 1 == depth ? 0 : s + 1; }
  // The last step that uses the zone, never the last of all; negative: none.
  __device__ int last_use(int steps) const { return steps - depth + Tile::kZone - 1; }
};

// The barrier of the cluster in two steps, for whole warps. It orders no memory: what comes before it is mbarriers made
// ready, which have a fence of their own, and products that have read the zone. Ordering would wait for all loads.
__device__ __forceinline__ void splitk_dsmem_arrive() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void splitk_dsmem_wait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

// The same place of another block's shared memory.
__device__ __forceinline__ uint32_t splitk_dsmem_address(uint32_t own, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(own), "r"(rank));
  return there;
}
// 16 bytes to another block, or this one, which complete on its barrier.
__device__ __forceinline__ void splitk_dsmem_store(uint32_t to, uint32_t barrier, float a, float b, float c, float d) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];\n" ::"r"(to),
      "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}
__device__ __forceinline__ void splitk_dsmem_receive(uint64_t* barrier) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p;}\n"
        : "=r"(done)
        : "r"(hopper::shared_address(barrier))
        : "memory");
  }
}

// `weight(to, barrier, k)` and `x(to, barrier, k)` copy the tiles number k. One warp, whose first lane copies. It
// arrives at the cluster's barrier only when those who multiply have what they need to do so: compute-sanitizer makes
// whoever arrives wait for all others.
template <class Tile, class W, class X>
__device__ void fill_push(const SplitKRing<Tile>& ring, const SplitKWork& work, W&& weight, X&& x) {
  const int steps = work.steps, ahead = min(steps, ring.depth), enough = ring.last_use(steps) + 2;
  const uint32_t bytes = Tile::kWeight + ring.x_bytes;
  const bool copies = threadIdx.x % 32 == 0;
  for (int i = 0, s = ring.begin; i < ahead && copies; ++i, s = ring.next(s)) {
    hopper::barrier_expect(ring.full + s, bytes);
    weight(ring.weight(s), ring.full + s, work.first + i);
  }
  wait_for_previous();  // weights are never written by a step, x is
  int s = ring.begin;
  for (int i = 0; i < ahead; ++i, s = ring.next(s)) {
    if (copies) x(ring.x(s), ring.full + s, work.first + i);
  }
  if (enough <= ahead) splitk_dsmem_arrive();
  for (int i = ahead; i < steps; ++i, s = ring.next(s)) {
    hopper::barrier_wait(ring.empty + s, static_cast<uint32_t>(i / ring.depth - 1) & 1);
    if (copies) {
      hopper::barrier_expect(ring.full + s, bytes);
      weight(ring.weight(s), ring.full + s, work.first + i);
      x(ring.x(s), ring.full + s, work.first + i);
    }
    if (i + 1 == enough) splitk_dsmem_arrive();
  }
}

// The 64 rows of the weight times all tokens. Arrives at the cluster's barrier once the zone is done with.
template <class Tile>
__device__ __forceinline__ void multiply_splitk_dsmem(const SplitKRing<Tile>& ring, int steps,
                                                      typename Tile::Sums& acc) {
  const int lane = threadIdx.x & 31, last_use = ring.last_use(steps);
  if (last_use < 0) splitk_dsmem_arrive();
  uint32_t parity = 0;
#pragma unroll 1
  for (int i = 0, s = ring.begin, before = 0, lap = 0; i < steps; ++i) {
    const uint64_t a = hopper::tile_descriptor(hopper::shared_address(ring.weight(s)));
    const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
    hopper::barrier_wait(ring.full + s, parity);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tile::kK / 16; ++k) hopper::Wgmma<Tile::kTokens>::run(acc, a + 2 * k, b + 2 * k, i + k > 0);
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (i > 0 && lane == 0) hopper::barrier_arrive(ring.empty + before);
    if (i > 0 && i - 1 == last_use) splitk_dsmem_arrive();
    before = s, s = ring.next(s);
    if (++lap == ring.depth) lap = 0, parity ^= 1;
  }
  hopper::wgmma_wait<0>();
}

}  // namespace tern::cuda
