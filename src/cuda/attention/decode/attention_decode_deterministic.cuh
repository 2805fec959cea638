// Decode attention (attention_decode_tma.cuh) for deterministic mode: tiles are joined to rounds of 4, rounds to
// segments of 16 tiles, segments to the result, always in ascending order at the same absolute positions. A unit whose
// tiles are in several ranges is left in `slots` as nodes of that order, and the block that is done last goes through
// them: where the cuts lie changes no bit.
#pragma once

#include "cuda/attention/decode/attention_decode_tma.cuh"

namespace tern::cuda {
namespace {

// After this block's part of a unit was left: whether all parts of it are there now.
template <class S>
__device__ __forceinline__ bool decode_last(const AttentionArgs& a, const DecodePiece& p, const DecodeShared<S>& sh) {
  computing_sync();
  if (threadIdx.x == 0) {
    int* counter = a.decode_counters + p.head;
    __threadfence();  // what the others wrote before the barrier is also ahead of this
    const bool last = atomicAdd(counter, 1) == p.parts - 1;
    __threadfence();
    if (last) *counter = 0;  // for the next layer
    *sh.last = last;
  }
  computing_sync();
  return *sh.last != 0;
}

// Goes through all nodes of a unit, first to last. Short code, used once per unit: what counts is how many instructions
// must be fetched. A node of a higher level comes when all below it is empty and passes through unchanged. Not inline:
// its registers would be missing in the loop over tiles.
template <class S>
__device__ __noinline__ void decode_join(const AttentionArgs& a, const DecodePiece& p, DecodeParts parts) {
  DecodeState<S> round, segment, total;
  round.clear(), segment.clear(), total.clear();
  DecodeNodes nodes(a, p, parts);
  constexpr int kTogether = 2;  // loads under way
#pragma unroll 1
  for (bool more = true; more;) {
    DecodeState<S> y[kTogether];
    bool closes_round[kTogether], closes_segment[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      y[i].clear();
      more = more && nodes.next();
      closes_round[i] = more && (nodes.level >= 1 || nodes.end % kDecodeRound == 0);
      closes_segment[i] = more && (nodes.level >= 2 || nodes.end % kDecodeSegment == 0);
      if (more) y[i].read(a.slots + int64_t{nodes.slot()} * S::kNode, p.u.queries());
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      round.add(y[i]);
      if (closes_round[i]) segment.add(round), round.clear();
      if (closes_segment[i]) total.add(segment), segment.clear();
    }
  }
  segment.add(round);
  total.add(segment);
  decode_store<S>(a, p.u, total);
}

// A unit or a part of one.
template <class S>
class DeterministicPiece {
 public:
  __device__ DeterministicPiece(const AttentionArgs& a, const DecodePiece& p) : a_(a), p_(p), parts_(a, p) {
    slot_ = a.slots + int64_t{p.slot(a)} * S::kNode;
  }
  __device__ __forceinline__ void run(const DecodeShared<S>& sh, DecodePlace<S>& at, int& turn) {
    round_.clear(), segment_.clear(), total_.clear();
    decode_tiles<S>(a_, p_, sh, at, turn, [&](int t, const DecodeState<S>& tile) { fold(t, tile); });
    finish(sh);
  }

 private:
  __device__ __forceinline__ void emit(const DecodeState<S>& s) {
    s.epilogue(slot_, p_.u.queries());
    slot_ += S::kNode;
  }
  // What began before this part is left in pieces (DecodeNodes).
  __device__ __forceinline__ void fold(int t, const DecodeState<S>& tile) {
    const bool round = t / kDecodeRound * kDecodeRound >= p_.from,
               segment = t / kDecodeSegment * kDecodeSegment >= p_.from;
    if (!round) {
      emit(tile);
    } else {
      round_.add(tile);
    }
    if ((t + 1) % kDecodeRound != 0) return;
    if (segment) {
      segment_.add(round_);
    } else if (round) {
      emit(round_);
    }
    round_.clear();
    if ((t + 1) % kDecodeSegment != 0 || !segment) return;
    if (p_.from == 0) {
      total_.add(segment_);
    } else {
      emit(segment_);
    }
    segment_.clear();
  }
  __device__ __forceinline__ void finish(const DecodeShared<S>& sh) {
    if (p_.parts == 1) {
      segment_.add(round_);
      total_.add(segment_);
      decode_store<S>(a_, p_.u, total_);
      return;
    }
    const int segment = p_.to / kDecodeSegment * kDecodeSegment, round = p_.to / kDecodeRound * kDecodeRound;
    if (p_.from == 0 && segment > 0) emit(total_);
    if (segment >= p_.from && round > segment) emit(segment_);
    if (round >= p_.from && p_.to > round) emit(round_);
    if (!decode_last(a_, p_, sh)) return;
    // What a function that is not inline reads lies in memory: a copy, or all of the loop would read it there.
    const DecodePiece copy = p_;
    decode_join<S>(a_, copy, parts_);
  }
  const AttentionArgs& a_;
  const DecodePiece& p_;
  DecodeParts parts_;
  float* slot_;
  DecodeState<S> round_, segment_, total_;
};

// This block's range. decode_early: as in decode_kernel.
template <class S>
__device__ __forceinline__ void decode_range(const AttentionArgs& a, const DecodeMaps& maps,
                                             const DecodeShared<S>& sh) {
  const int used = a.decode_plan[0];
  DecodeIterator walk(a, blockIdx.x);
  if (static_cast<int>(blockIdx.x) >= used) return wait_for_previous();
  DecodePiece p;
  DecodePlace<S> at;
  if (threadIdx.x >= 128) {
    bool waited = decode_waited(a);
    while (walk.next(p)) decode_producer<S>(a, maps, p, sh, at, waited);
    return;
  }
  int turn = 0;
  bool more = walk.next(p);
  if (a.decode_early) wait_for_previous();
  for (; more; more = walk.next(p)) DeterministicPiece<S>(a, p).run(sh, at, turn);
}

// decode_early (attention_args.h): the plan and tiles of earlier steps are read before the wait.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    decode_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ DecodeMaps maps) {
  extern __shared__ char memory[];
  let_next_start();
  const DecodeShared<S> sh(memory);
  decode_begin<S>(sh, maps);
  if (!a.decode_early) wait_for_previous();
  decode_range<S>(a, maps, sh);
}

}  // namespace
}  // namespace tern::cuda
