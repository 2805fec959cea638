// Ranks on GPUs that read and write each other's memory: what a kernel is given of them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device/communicator.h"

namespace tern::cuda {

inline constexpr int kMostRanks = 8;
inline constexpr int kPeerBlocks = 128;    // of a collective at most: all of them run at once
inline constexpr int kStageFloats = 8192;  // that a block has room for, of each rank, in one collective
inline constexpr int kStageWords = kStageFloats / 2;

// Of each rank, in its memory. Block b of a collective meets block b of the others, and no other: all ranks launch the
// same collectives with the same grids, and each block counts those it has been in. So a graph replays without the
// host, and kernels with other grids may come between.
struct PeerBoard {
  uint32_t done[kPeerBlocks];            // how many; of this rank's blocks alone
  uint4 begun[kPeerBlocks][kMostRanks];  // by rank: an address of its memory and its count, see peer.cuh
  uint32_t ended[kPeerBlocks][kMostRanks];
};

// Two stages follow the board: a block writes into them in turn. Into the one of count c a rank writes when it has
// heard of everybody's count c - 1, and so everybody has read what was there for c - 2.
struct Peers {
  PeerBoard* board[kMostRanks] = {};
  uint4* stage[kMostRanks] = {};     // [2][kPeerBlocks][ranks][kStageWords]
  const uint32_t* failed = nullptr;  // host memory: not 0 once a rank has failed, for which nobody waits then
  int rank = 0, ranks = 1;
};

inline size_t stage_bytes(int ranks) {
  return size_t{2} * kPeerBlocks * static_cast<size_t>(ranks) * kStageWords * sizeof(uint4);
}

// Of a communicator of GPUs; null: it is none, or its rank is out of range.
inline const Peers* peers_of(const device::Communicator& c) {
  const auto* p = static_cast<const Peers*>(c.native);
  return p != nullptr && p->rank == c.rank && p->ranks == c.ranks ? p : nullptr;
}

}  // namespace tern::cuda
