// Decode attention (attention_decode_tma.cuh) where bits may follow from how a step is cut: tiles of a range are joined
// one after the other, and a part of a unit leaves one node. Warps that compute never wait for other blocks or for what
// comes next: the warp that feeds says which tiles come, a sixth warp hands parts in and joins those of a unit, in the
// order of their keys, when they are all there. The same step has the same bits.
#pragma once

#include "cuda/attention/decode/attention_decode_tma.cuh"

namespace tern::cuda {
namespace {

inline constexpr int kFreeSlots = 4;  // pieces that are known ahead
// Tiles that are asked for before the first queries are there. What a block asks of the memory is served in turn: with
// a whole ring on its way from every block, queries would be there when the ring has long been full.
inline constexpr int kFreeEarly = 2;

// Behind DecodeShared: pieces on their way from the warp that feeds to the others. `known`: a piece is there; `done`:
// the warps that compute are through with it; `open`: its place may be taken.
template <class S>
struct FreeShared {
  static constexpr int kThreads = S::kThreads + 32;
  static constexpr size_t kBytes = S::kBytes + kFreeSlots * (sizeof(DecodePiece) + 3 * sizeof(uint64_t)) + 24;
  uint64_t *known, *done, *open, *begun;  // begun: the first queries are there
  DecodePiece* pieces;
  __device__ explicit FreeShared(const DecodeShared<S>& sh) {
    known = reinterpret_cast<uint64_t*>(sh.last + 2), done = known + kFreeSlots, open = done + kFreeSlots;
    begun = open + kFreeSlots, pieces = reinterpret_cast<DecodePiece*>(begun + 1);
  }
  __device__ __forceinline__ void begin() const {  // before decode_begin()
    if (threadIdx.x != 0) return;
    for (int i = 0; i < kFreeSlots; ++i)
      barrier_init(&known[i], 1), barrier_init(&done[i], 4), barrier_init(&open[i], 1);
    barrier_init(begun, 4);
  }
  // Piece number i; false: there are no more. All lanes of a warp.
  __device__ __forceinline__ bool take(int i, DecodePiece& p) const {
    barrier_wait(&known[i % kFreeSlots], static_cast<uint32_t>(i / kFreeSlots) & 1);
    p = pieces[i % kFreeSlots];
    return p.parts > 0;
  }
  __device__ __forceinline__ void tell(int i, const DecodePiece& p) const {
    barrier_wait(&open[i % kFreeSlots], static_cast<uint32_t>(i / kFreeSlots + 1) & 1);
    if ((threadIdx.x & 31) == 0) {
      pieces[i % kFreeSlots] = p;
      barrier_arrive(&known[i % kFreeSlots]);
    }
    __syncwarp();
  }
};

template <class S>
__device__ __forceinline__ float* free_node(const AttentionArgs& a, const DecodePiece& p, int part) {
  return a.slots + int64_t{decode_slot(a, p.head + part, part == 0)} * S::kNode;
}

// All parts of a unit by one warp, which stands for the four that left them.
template <class S>
__device__ __forceinline__ void free_join(const AttentionArgs& a, const DecodePiece& p) {
  constexpr int kTogether = S::kValues <= 8 ? 4 : 1;  // warps
  const int lane = threadIdx.x & 31;
#pragma unroll 1
  for (int w0 = 0; w0 < 4; w0 += kTogether) {
    DecodeState<S> total[kTogether];
#pragma unroll
    for (int w = 0; w < kTogether; ++w) total[w].clear();
#pragma unroll 1
    for (int part = 0; part < p.parts; ++part) {
      DecodeState<S> y[kTogether];
#pragma unroll
      for (int w = 0; w < kTogether; ++w) {
        y[w].clear();
        y[w].read(free_node<S>(a, p, part), p.u.queries(), (w0 + w) * 32 + lane);
      }
#pragma unroll
      for (int w = 0; w < kTogether; ++w) total[w].add(y[w]);
    }
#pragma unroll
    for (int w = 0; w < kTogether; ++w) decode_store<S>(a, p.u, total[w], (w0 + w) * 32 + lane);
  }
}

template <class S>
__device__ __forceinline__ void free_producer(const AttentionArgs& a, const DecodeMaps& maps, const DecodeShared<S>& sh,
                                              const FreeShared<S>& free, DecodeIterator& walk) {
  DecodePlace<S> at;
  DecodePiece p{};
  bool waited = decode_waited(a);
  int i = 0, early = kFreeEarly;
  for (; walk.next(p); ++i) {
    free.tell(i, p);
    decode_producer<S>(a, maps, p, sh, at, waited, [&] {
      if (early-- == 0) barrier_wait(free.begun, 0);
    });
  }
  p.parts = 0;
  free.tell(i, p);
}

template <class S>
__device__ __forceinline__ void free_hand_in(const AttentionArgs& a, const FreeShared<S>& free) {
  const int lane = threadIdx.x & 31;
  DecodePiece p{};
#pragma unroll 1
  for (int i = 0; free.take(i, p); ++i) {
    barrier_wait(&free.done[i % kFreeSlots], static_cast<uint32_t>(i / kFreeSlots) & 1);
    __syncwarp();
    if (lane == 0) barrier_arrive(&free.open[i % kFreeSlots]);
    if (p.parts == 1) continue;
    auto* const ticket = reinterpret_cast<uint32_t*>(a.decode_counters + p.head);
    if (last_to_come(ticket, p.parts)) free_join<S>(a, p);
  }
}

template <class S>
__device__ __forceinline__ void free_compute(const AttentionArgs& a, const DecodeShared<S>& sh,
                                             const FreeShared<S>& free) {
  DecodePlace<S> at;
  DecodePiece p{};
  int turn = 0;
  for (int i = 0; free.take(i, p); ++i) {
    DecodeState<S> total;
    total.clear();
    const auto begun = [&] {
      __syncwarp();
      if (i == 0 && (threadIdx.x & 31) == 0) barrier_arrive(free.begun);
    };
    decode_tiles<S>(
        a, p, sh, at, turn, [&](int, const DecodeState<S>& tile) { total.add(tile); }, begun);
    if (p.parts == 1) {
      decode_store<S>(a, p.u, total);
    } else {
      total.epilogue(a.slots + int64_t{p.slot(a)} * S::kNode, p.u.queries());
    }
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(&free.done[i % kFreeSlots]);
  }
}

// decode_early as of decode_kernel().
template <class S>
__global__ void __launch_bounds__(FreeShared<S>::kThreads, S::kBlocks)
    decode_free_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ DecodeMaps maps) {
  extern __shared__ char memory[];
  let_next_start();
  const DecodeShared<S> sh(memory);
  const FreeShared<S> free(sh);
  free.begin();
  decode_begin<S>(sh, maps);
  if (!a.decode_early) wait_for_previous();
  DecodeIterator walk(a, blockIdx.x);  // asked for together with the number of ranges
  const int used = a.decode_plan[0];
  if (static_cast<int>(blockIdx.x) >= used) {
    if (blockIdx.x == 0) wait_for_previous();  // somebody has to; others make room
    return;
  }
  if (threadIdx.x >= 128 && threadIdx.x < 160) {
    free_producer<S>(a, maps, sh, free, walk);
    return;
  }
  bring_parameters(a);
  if (a.decode_early) wait_for_previous();
  if (threadIdx.x < 128) {
    free_compute<S>(a, sh, free);
  } else {
    free_hand_in<S>(a, free);
  }
}

}  // namespace
}  // namespace tern::cuda
