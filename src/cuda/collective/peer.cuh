// How blocks of a collective meet those of the other ranks.
#pragma once

#include "cuda/collective/peers.h"
#include "cuda/ptx/peer_access.cuh"

namespace tern::cuda {

// After wait_for_previous(): the number of the collective that this block is in. Then finish(), by all threads.
__device__ __forceinline__ uint32_t next_count(const Peers& p) { return p.board[p.rank]->done[blockIdx.x] + 1; }
__device__ __forceinline__ void finish(const Peers& p, uint32_t count) {
  __syncthreads();
  if (threadIdx.x == 0) p.board[p.rank]->done[blockIdx.x] = count;
}

// Where rank `from` leaves its words for rank `to`.
__device__ __forceinline__ uint4* stage_of(const Peers& p, int to, int from, uint32_t count) {
  const size_t place = (size_t{count & 1} * kPeerBlocks + blockIdx.x) * static_cast<size_t>(p.ranks) + from;
  return p.stage[to] + place * kStageWords;
}

// Gives values [at, at + 4) of this block to all others.
__device__ __forceinline__ void send_four(const Peers& p, uint32_t count, int at, const float4& v) {
  const uint4 a = make_uint4(__float_as_uint(v.x), count, __float_as_uint(v.y), count);
  const uint4 b = make_uint4(__float_as_uint(v.z), count, __float_as_uint(v.w), count);
  for (int r = 0; r < p.ranks; ++r) {
    if (r == p.rank) continue;
    uint4* const to = stage_of(p, r, p.rank, count) + at / 2;
    put_word(to, a);
    put_word(to + 1, b);
  }
}

// The sum over ranks, in their order, of what send_four() was given; `own`: of this rank. kMost: ranks at most.
template <int kMost>
__device__ __forceinline__ float4 sum_four(const Peers& p, uint32_t count, int at, const float4& own) {
  uint4 w[kMost][2];
  wait_for_peer(p.failed, [&] {
    bool all = true;
#pragma unroll
    for (int r = 0; r < kMost; ++r) {
      if (r >= p.ranks || r == p.rank) continue;
      const uint4* const from = stage_of(p, p.rank, r, count) + at / 2;
      w[r][0] = see_word(from), w[r][1] = see_word(from + 1);
    }
#pragma unroll
    for (int r = 0; r < kMost; ++r) {
      if (r >= p.ranks || r == p.rank) continue;
      all = all && w[r][0].y == count && w[r][0].w == count && w[r][1].y == count && w[r][1].w == count;
    }
    return all;
  });
  float4 sum{};
#pragma unroll
  for (int r = 0; r < kMost; ++r) {
    if (r >= p.ranks) continue;
    float4 v = own;
    if (r != p.rank) {
      v = make_float4(__uint_as_float(w[r][0].x), __uint_as_float(w[r][0].z), __uint_as_float(w[r][1].x),
                      __uint_as_float(w[r][1].z));
    }
    sum = r == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
  }
  return sum;
}

// Tells the others where `own` is and that all before this kernel is there, and waits until they have: of[r] is theirs
// then, which may be read and written until end(). By all threads.
__device__ __forceinline__ void begin(const Peers& p, uint32_t count, void* own, void** of) {
  const int r = static_cast<int>(threadIdx.x);
  if (r == p.rank) of[r] = own;
  if (r < p.ranks && r != p.rank) {
    const auto at = reinterpret_cast<uint64_t>(own);
    fence_peers();
    put_word(&p.board[r]->begun[blockIdx.x][p.rank],
             make_uint4(static_cast<uint32_t>(at), count, static_cast<uint32_t>(at >> 32), count));
    uint4 w{};
    wait_for_peer(p.failed, [&] {
      w = see_word(&p.board[p.rank]->begun[blockIdx.x][r]);
      return w.y == count && w.w == count;
    });
    fence_peers();
    const bool came = w.y == count && w.w == count;  // else a rank has failed
    of[r] = came ? reinterpret_cast<void*>(uint64_t{w.z} << 32 | w.x) : nullptr;
  }
  __syncthreads();
}

// Says that this block is done with the others' memory, and waits until theirs are with this one's. By all threads.
__device__ __forceinline__ void end(const Peers& p, uint32_t count) {
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r < p.ranks && r != p.rank) {
    put_flag(&p.board[r]->ended[blockIdx.x][p.rank], count);
    wait_for_peer(p.failed,
                  [&] { return static_cast<int32_t>(see_flag(&p.board[p.rank]->ended[blockIdx.x][r]) - count) >= 0; });
  }
  finish(p, count);
}

// Whether everybody came: if not, a rank has failed, and nothing may be read or written.
__device__ __forceinline__ bool all_came(const Peers& p, void* const* of) {
  for (int r = 0; r < p.ranks; ++r) {
    if (of[r] == nullptr) return false;
  }
  return true;
}

}  // namespace tern::cuda
