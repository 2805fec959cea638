// Products on Hopper of up to 64 rows whose k is cut over the blocks of a cluster, where waiting is what counts: the
// sums of gemm_sm90.cu, but every block sends its part of a tile from registers straight to the blocks that add parts
// up, each of which has a share of the tile. What arrives completes on the receiver's mbarrier, as loads of the copy
// engine do. The one barrier of the cluster, that a block's landing zone may be written, is hidden behind the loads.
//
// The zone is the first stage of the ring, and stages are taken in such an order that it is the first one done with.
// With a gate a tile's rows are 8 of gate and the 8 of up that belong to them, by turns: a thread holds both.
#pragma once

#include "cuda/gemm.h"
#include "cuda/hopper_units.cuh"
#include "cuda/kernel_util.cuh"
#include "cuda/launch.cuh"
#include "cuda/wgmma.cuh"

namespace tern::cuda {

// Stages of so many bytes in each of `blocks` rings on a multiprocessor: of its 228 KiB a block takes one for the
// system, half of one for barriers and one for its beginning at a multiple of one.
constexpr int push_depth(int stage, int blocks) {
  const int fits = (228 * 1024 / blocks - 2560) / stage;
  return fits < 12 ? fits : 12;
}

template <int kTokens_, int kRows_>
struct PushTile {
  static constexpr int kTokens = kTokens_, kRows = kRows_, kBlocks = 3, kK = 64;
  static constexpr int kWorkers = 2 * kRows, kThreads = kWorkers + 32;
  static constexpr int kWeight = kRows * kK * 2, kX = kTokens * kK * 2, kStage = kWeight + kX;  // bytes
  static constexpr int kLanding = kTokens * kRows * 4;                                          // bytes of the zone
  static constexpr int kQuads = kTokens / 8;                                                    // sums of a thread / 4
  static constexpr int kMostDepth = push_depth(kStage, 2);
  static_assert(kLanding <= kStage && push_depth(kStage, kBlocks) >= 2);
  static constexpr size_t bytes(int stages) { return 1024 + size_t{kStage} * static_cast<size_t>(stages); }
  using Sums = float[kTokens / 2];
};

struct PushGrid {
  int k_tiles, split;  // blocks of a cluster, which share the k of a tile
  int depth;           // stages of the ring: at least 2
  int x_bytes;         // of a stage
};

// What a block computes: k tiles [first, last) of the rows of the weight from tile * kRows on.
struct PushWork {
  int tile, first, last;
};

template <class Tile>
struct PushRing {
  char* stages;
  uint64_t *full, *empty, *landed;
  int depth, begin;  // begin: the stage of the first step, such that the last step has the last stage
  __device__ PushRing(char* memory, uint64_t* barriers, int stages_, int steps)
      : full(barriers), empty(barriers + Tile::kMostDepth), landed(barriers + 2 * Tile::kMostDepth), depth(stages_) {
    const uint32_t at = hopper::shared_address(memory);
    stages = memory + ((at + 1023) / 1024 * 1024 - at);
    begin = (depth - steps % depth) % depth;
  }
  __device__ char* weight(int s) const { return stages + s * Tile::kStage; }
  __device__ char* x(int s) const { return weight(s) + Tile::kWeight; }
  __device__ int next(int s) const { return s + 1 == depth ? 0 : s + 1; }
  // The last step that uses the zone, never the last of all; negative: none.
  __device__ int last_use(int steps) const { return steps - depth; }
};

// The barrier of the cluster in two steps, for whole warps.
__device__ __forceinline__ void push_arrive() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void push_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory"); }

// The same place of another block's shared memory.
__device__ __forceinline__ uint32_t push_address(uint32_t own, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(own), "r"(rank));
  return there;
}
// 16 bytes to another block, or this one, which complete on its barrier.
__device__ __forceinline__ void push_store(uint32_t to, uint32_t barrier, float a, float b, float c, float d) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];\n" ::"r"(to),
      "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}
__device__ __forceinline__ void push_receive(uint64_t* barrier) {
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

// `weight(to, barrier, k)` and `x(to, barrier, k)` copy the tiles number k; x_bytes of x arrive per stage. One warp,
// whose first lane copies. It arrives at the cluster's barrier only when those who multiply have what they need to do
// so: compute-sanitizer makes whoever arrives wait for all others.
template <class Tile, class W, class X>
__device__ void fill_push(const PushRing<Tile>& ring, const PushWork& work, int x_bytes, W&& weight, X&& x) {
  const int steps = work.last - work.first, ahead = min(steps, ring.depth), enough = ring.last_use(steps) + 2;
  const auto bytes = static_cast<uint32_t>(Tile::kWeight + x_bytes);
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
  if (enough <= ahead) push_arrive();
  for (int i = ahead; i < steps; ++i, s = ring.next(s)) {
    hopper::barrier_wait(ring.empty + s, static_cast<uint32_t>(i / ring.depth - 1) & 1);
    if (copies) {
      hopper::barrier_expect(ring.full + s, bytes);
      weight(ring.weight(s), ring.full + s, work.first + i);
      x(ring.x(s), ring.full + s, work.first + i);
    }
    if (i + 1 == enough) push_arrive();
  }
}

// A warpgroup's 64 rows of the weight times all tokens. Arrives at the cluster's barrier once the zone is done with.
template <class Tile>
__device__ __forceinline__ void multiply_push(const PushRing<Tile>& ring, const PushWork& work,
                                              typename Tile::Sums& acc) {
  const int lane = threadIdx.x & 31, half = threadIdx.x / 128 * 64;
  const int steps = work.last - work.first, last_use = ring.last_use(steps);
  if (last_use < 0) push_arrive();
  uint32_t parity = 0;
  int before = 0;
  for (int i = 0, s = ring.begin, lap = 0; i < steps; ++i) {
    hopper::barrier_wait(ring.full + s, parity);
    const uint64_t a = hopper::tile_descriptor(hopper::shared_address(ring.weight(s)) + half * Tile::kK * 2);
    const uint64_t b = hopper::tile_descriptor(hopper::shared_address(ring.x(s)));
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tile::kK / 16; ++k) hopper::Wgmma<Tile::kTokens>::run(acc, a + 2 * k, b + 2 * k, i + k > 0);
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (i > 0 && lane == 0) hopper::barrier_arrive(ring.empty + before);
    if (i > 0 && i - 1 == last_use) push_arrive();
    before = s, s = ring.next(s);
    if (++lap == ring.depth) lap = 0, parity ^= 1;
  }
  hopper::wgmma_wait<0>();
}

// Sums number i of a tile are quad i / kWorkers of thread i % kWorkers; each of the cluster's blocks has an equal share
// of neighbouring ones. To all blocks what is theirs of this block's part.
template <class Tile, int kSplit>
__device__ __forceinline__ void send_part(const PushRing<Tile>& ring, int rank, const typename Tile::Sums& acc) {
  constexpr int kShare = Tile::kQuads * Tile::kWorkers / kSplit;
  const uint32_t zone = hopper::shared_address(ring.stages) + static_cast<uint32_t>(rank * kShare) * 16;
  const uint32_t landed = hopper::shared_address(ring.landed);
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    const int i = q * Tile::kWorkers + static_cast<int>(threadIdx.x), to = i / kShare;
    push_store(push_address(zone + static_cast<uint32_t>(i % kShare) * 16, to), push_address(landed, to), acc[4 * q],
               acc[4 * q + 1], acc[4 * q + 2], acc[4 * q + 3]);
  }
}

// Written once, by the thread that has added it up.
__device__ __forceinline__ void store_one(const Gemm& g, int64_t token, int64_t col, float v) {
  const int64_t offset = token * g.out_row + col;
  if (g.out_bf16) {
    static_cast<bf*>(g.out)[offset] = from_float<bf>(v);
  } else {
    static_cast<float*>(g.out)[offset] = v;
  }
}

// A quad: two rows of the weight, 8 apart, and two tokens.
template <class Tile>
__device__ __forceinline__ void store_quad(const Gemm& g, int tile, int quad, int thread, float4 v) {
  const int lane = thread & 31;
  const int64_t token = quad * 8 + lane % 4 * 2;
  const auto add = [&](int64_t at, float& x, float& y) {
    if (g.bias != nullptr) x += g.bias[at], y += g.bias[at];
  };
  if (g.gated) {
    const int64_t n = g.n / 2, col = (int64_t{tile} * Tile::kRows + thread / 32 * 16) / 2 + lane / 4;
    if (col >= n) return;
    add(col, v.x, v.y), add(n + col, v.z, v.w);
    if (token < g.rows) store_one(g, token, col, silu(v.x) * v.z);
    if (token + 1 < g.rows) store_one(g, token + 1, col, silu(v.y) * v.w);
    return;
  }
  const int64_t col = int64_t{tile} * Tile::kRows + thread / 32 * 16 + lane / 4;
  if (col < g.n) {
    add(col, v.x, v.y);
    if (token < g.rows) store_one(g, token, col, v.x);
    if (token + 1 < g.rows) store_one(g, token + 1, col, v.y);
  }
  if (col + 8 < g.n) {
    add(col + 8, v.z, v.w);
    if (token < g.rows) store_one(g, token, col + 8, v.z);
    if (token + 1 < g.rows) store_one(g, token + 1, col + 8, v.w);
  }
}

// Adds up this block's share of all parts, in the order of blocks: the bits of gemm_hopper.
template <class Tile, int kSplit>
__device__ __forceinline__ void add_share(const Gemm& g, const PushRing<Tile>& ring, int tile, int rank) {
  constexpr int kShare = Tile::kQuads * Tile::kWorkers / kSplit;
  push_receive(ring.landed);
  const auto* zone = reinterpret_cast<const float4*>(ring.stages);
  for (int i = static_cast<int>(threadIdx.x); i < kShare; i += Tile::kWorkers) {
    float4 v[kSplit];
#pragma unroll
    for (int s = 0; s < kSplit; ++s) v[s] = zone[s * kShare + i];
    float4 sum = v[0];
#pragma unroll
    for (int s = 1; s < kSplit; ++s) sum.x += v[s].x, sum.y += v[s].y, sum.z += v[s].z, sum.w += v[s].w;
    const int at = rank * kShare + i;
    store_quad<Tile>(g, tile, at / Tile::kWorkers, at % Tile::kWorkers, sum);
  }
}

// All workers. Nobody waits at the end: a block stays until all parts of its share have arrived, so those who send may
// leave before.
template <class Tile, int kSplit>
__device__ __forceinline__ void exchange(const Gemm& g, const PushRing<Tile>& ring, int tile, int rank,
                                         const typename Tile::Sums& acc) {
  send_part<Tile, kSplit>(ring, rank, acc);
  add_share<Tile, kSplit>(g, ring, tile, rank);
}

}  // namespace tern::cuda
