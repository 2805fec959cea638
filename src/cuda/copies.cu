// Lists of copies between the GPU's memory and pinned host memory, which a kernel reads and writes like its own; and
// the faults that tests ask for.
#include <algorithm>

#include "cuda/copies.h"
#include "cuda/launch.cuh"

namespace tern::cuda {
namespace {

constexpr int kPieces = 24;  // in one launch: they travel as its parameters
constexpr int kThreads = 128;
constexpr int kAhead = 4;  // loads in flight per thread: the host's memory is far away

struct Pieces {
  device::CopySpan piece[kPieces];
};

// Units of T from first on; rows lie end to end in this count.
template <class T>
__device__ void copy(const device::CopySpan& p, size_t first, size_t step) {
  const size_t per_row = p.bytes / sizeof(T), n = per_row * p.rows;
  char* const to = static_cast<char*>(p.dst);
  const char* const from = static_cast<const char*>(p.src);
  for (size_t i = first; i < n; i += kAhead * step) {
    T v[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const size_t at = i + j * step;
      if (at < n) v[j] = reinterpret_cast<const T*>(from + at / per_row * p.src_stride)[at % per_row];
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const size_t at = i + j * step;
      if (at < n) reinterpret_cast<T*>(to + at / per_row * p.dst_stride)[at % per_row] = v[j];
    }
  }
}

// Block (x, y): share x of piece y.
__global__ void copy_kernel(Pieces list) {
  let_next_start();
  wait_for_previous();
  const device::CopySpan& p = list.piece[blockIdx.y];
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

Status launch_pieces(const Pieces& list, int count, size_t largest, device::Stream stream) {
  const auto shares = static_cast<unsigned>(std::clamp<size_t>(largest / (4 * kAhead * kThreads), 1, 32));
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
