// Lists of copies between the GPU's memory and pinned host memory, which a kernel reads and writes like its own; and
// the faults that tests ask for.
#include <algorithm>

#include "cuda/host/copies.h"
#include "cuda/ptx/launch.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kPieces = 24;  // in one launch: they travel as its parameters
constexpr int kThreads = 128;
constexpr int kAhead = 4;  // loads in flight per thread: the host's memory is far away

struct Pieces {
  device::CopySpan piece[kPieces];
};
struct PieceSets {
  Pieces set[2];
};

// Units of T from first on; rows lie end to end in this count. I: of a division of 64 bits the GPU makes a hundred
// instructions.
template <class T, class I>
__device__ void copy(const device::CopySpan& p, size_t first, size_t step) {
  const auto per_row = static_cast<I>(p.bytes / sizeof(T));
  const size_t n = size_t{per_row} * p.rows;
  char* const to = static_cast<char*>(p.dst);
  const char* const from = static_cast<const char*>(p.src);
  for (size_t i = first; i < n; i += kAhead * step) {
    T v[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const auto at = static_cast<I>(i + j * step);
      if (i + j * step < n) v[j] = reinterpret_cast<const T*>(from + at / per_row * p.src_stride)[at % per_row];
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const auto at = static_cast<I>(i + j * step);
      if (i + j * step < n) reinterpret_cast<T*>(to + at / per_row * p.dst_stride)[at % per_row] = v[j];
    }
  }
}
template <class T>
__device__ void copy(const device::CopySpan& p, size_t first, size_t step) {
  if (p.bytes * p.rows < size_t{1} << 32) {
    copy<T, uint32_t>(p, first, step);
  } else {
    copy<T, size_t>(p, first, step);
  }
}

// This block's share of a piece: blocks that share one lie in x.
__device__ void copy_piece(const device::CopySpan& p) {
  const size_t first = size_t{blockIdx.x} * blockDim.x + threadIdx.x, step = size_t{gridDim.x} * blockDim.x;
  size_t all = reinterpret_cast<uintptr_t>(p.dst) | reinterpret_cast<uintptr_t>(p.src) | p.bytes;
  if (p.rows > 1) all |= p.dst_stride | p.src_stride;
  if (all % 16 == 0) {
    copy<uint4>(p, first, step);
  } else if (all % 4 == 0) {
    copy<uint32_t>(p, first, step);
  } else {
    copy<char>(p, first, step);
  }
}

// Block (x, y): share x of piece y.
__global__ void copy_kernel(const __grid_constant__ Pieces list) {
  let_next_start();
  wait_for_previous();
  copy_piece(list.piece[blockIdx.y]);
}

// Likewise; the turn passes in a grid of one block, which has read it by then.
__global__ void turn_kernel(const __grid_constant__ PieceSets list, int count, int32_t* turn, bool passes) {
  let_next_start();
  wait_for_previous();
  const int now = *turn & 1;
  for (int i = static_cast<int>(blockIdx.y); i < count; i += static_cast<int>(gridDim.y)) {
    copy_piece(list.set[now].piece[i]);
  }
  if (!passes) return;
  __syncthreads();
  if (threadIdx.x == 0) *turn = 1 - now;
}

__global__ void store_kernel(int* to) {
  wait_for_previous();
  *to = 1;
}

__device__ int never = 0;
__global__ void wait_kernel() {
  wait_for_previous();
  const volatile int* flag = &never;
  while (*flag == 0) {
  }
}

// Blocks for the largest piece of a list.
unsigned shares_of(size_t largest) {
  return static_cast<unsigned>(std::clamp<size_t>(largest / (4 * kAhead * kThreads), 1, 32));
}

Status launch_pieces(const Pieces& list, int count, size_t largest, device::Stream stream) {
  const unsigned shares = shares_of(largest);
  return launch(stream, "copy_many", {dim3(shares, static_cast<unsigned>(count)), dim3(kThreads), 0}, copy_kernel,
                list);
}

}  // namespace

Status copy_many(std::span<const device::CopySpan> pieces, device::Stream stream) {
  Pieces list;
  int count = 0;
  size_t largest = 0;
  for (const device::CopySpan& p : pieces) {
    if (p.bytes == 0 || p.rows == 0) continue;
    list.piece[count++] = p;
    largest = std::max(largest, p.bytes * p.rows);
    if (count < kPieces) continue;
    TERN_RETURN_IF_ERROR(launch_pieces(list, count, largest, stream));
    count = 0, largest = 0;
  }
  return count > 0 ? launch_pieces(list, count, largest, stream) : Status();
}

Status copy_in_turn(const std::array<std::span<const device::CopySpan>, 2>& sets, const device::HostTurn& turn,
                    device::Stream stream) {
  const size_t count = sets[0].size();
  TERN_OP_CHECK("copy_in_turn", count == sets[1].size() && count <= kPieces && turn.turn != nullptr,
                "two sets of a few pieces, and whose turn it is");
  PieceSets list;
  size_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    list.set[0].piece[i] = sets[0][i], list.set[1].piece[i] = sets[1][i];
    largest = std::max(largest, sets[0][i].bytes * sets[0][i].rows);
  }
  const dim3 grid = turn.passes ? dim3(1) : dim3(shares_of(largest), static_cast<unsigned>(std::max<size_t>(count, 1)));
  return launch(stream, "copy_in_turn", {grid, dim3(kThreads), 0}, turn_kernel, list, static_cast<int>(count),
                turn.turn, turn.passes);
}

Status inject(device::Fault fault, device::Stream stream) {
  switch (fault) {
    case device::Fault::kNone:
      break;
    case device::Fault::kTrap:
      return launch(stream, "trap", {dim3(1), dim3(1), 0}, store_kernel, reinterpret_cast<int*>(uintptr_t{64}));
    case device::Fault::kHang:
      return launch(stream, "hang", {dim3(1), dim3(1), 0}, wait_kernel);
  }
  return {};
}

}  // namespace tern::cuda
