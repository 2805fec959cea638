// Rows and values that go from rank to rank as they are.
#include <algorithm>

#include "cuda/collective/peer.cuh"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 512, kFewThreads = 256;
constexpr int64_t kPiece = 4096;  // values of a row that a block copies at a time
constexpr int64_t kGathered = kStageFloats;

__device__ __forceinline__ int owner_of(const int32_t* owner, int64_t row) { return owner == nullptr ? 0 : owner[row]; }

struct Deal {
  const float* x;
  int64_t rows, width, x_row;
  const int32_t* owner;
  float* out;
  int64_t out_row, first;
  bool vector;
};

// Pieces of rows to where their owner wants them: of[r] is rank r's `out`.
__device__ __forceinline__ void copy_pieces(const Deal& d, int ranks, void* const* of) {
  const int64_t pieces = (d.width + kPiece - 1) / kPiece;
  for (int64_t i = blockIdx.x; i < pieces * d.rows; i += gridDim.x) {
    const int64_t row = i / pieces, from = i % pieces * kPiece;
    const int64_t n = d.width - from < kPiece ? d.width - from : kPiece;
    const int to = owner_of(d.owner, row);
    if (to < 0 || to >= ranks || of[to] == nullptr) continue;
    const float* const x = d.x + row * d.x_row + from;
    float* const out = static_cast<float*>(of[to]) + row * d.out_row + d.first + from;
    if (d.vector && n % 4 == 0) {
      for (int64_t j = threadIdx.x; j < n / 4; j += kThreads) {
        reinterpret_cast<float4*>(out)[j] = reinterpret_cast<const float4*>(x)[j];
      }
    } else {
      for (int64_t j = threadIdx.x; j < n; j += kThreads) out[j] = x[j];
    }
  }
}

__global__ void __launch_bounds__(kThreads) deal_rows_kernel(const __grid_constant__ Peers p, const Deal d) {
  __shared__ void* of[kMostRanks];
  let_next_start();
  wait_for_previous();
  const uint32_t count = next_count(p);
  begin(p, count, d.out, of);
  copy_pieces(d, p.ranks, of);
  end(p, count);
}

// Of one rank.
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(const Deal d) {
  let_next_start();
  wait_for_previous();
  void* const of[1] = {d.out};
  copy_pieces(d, 1, of);
}

// All values to all ranks, each of which takes those of the owners.
__global__ void __launch_bounds__(kFewThreads)
    gather_values_kernel(const __grid_constant__ Peers p, const int32_t* owner, float* x, int64_t n) {
  let_next_start();
  wait_for_previous();
  const uint32_t count = next_count(p);
  float* const mine = x + blockIdx.x * kGathered;
  const int64_t left = n - blockIdx.x * kGathered;
  const int most = static_cast<int>(left < kGathered ? left : kGathered);
  const auto value = [&](int i) { return i < most ? __float_as_uint(mine[i]) : 0u; };
  for (int i = 2 * static_cast<int>(threadIdx.x); i < most; i += 2 * kFewThreads) {
    const uint4 w = make_uint4(value(i), count, value(i + 1), count);
    for (int r = 0; r < p.ranks; ++r) {
      if (r != p.rank) put_word(stage_of(p, r, p.rank, count) + i / 2, w);
    }
  }
  for (int i = 2 * static_cast<int>(threadIdx.x); i < most; i += 2 * kFewThreads) {
    for (int r = 0; r < p.ranks; ++r) {
      if (r == p.rank) continue;
      uint4 w;
      wait_for_peer(p.failed, [&] {
        w = see_word(stage_of(p, p.rank, r, count) + i / 2);
        return w.y == count && w.w == count;
      });
      const int64_t row = blockIdx.x * kGathered + i;
      if (owner_of(owner, row) == r) mine[i] = __uint_as_float(w.x);
      if (i + 1 < most && owner_of(owner, row + 1) == r) mine[i + 1] = __uint_as_float(w.z);
    }
  }
  finish(p, count);
}

}  // namespace

Status all_to_all(const ops::AllToAllParams& params, device::Stream stream) {
  constexpr const char* kOp = "all_to_all";
  const TensorView &x = params.x, &out = params.out;
  const int64_t rows = x.dim[0];
  TERN_OP_CHECK(kOp, x.dtype == DType::kF32 && x.rank == 2 && ops::is_rows(x), "x must be [L, W] of float32");
  TERN_OP_CHECK(kOp, out.dtype == DType::kF32 && ops::is_matrix(out, rows, out.dim[1]),
                "out must be [L, V] of float32");
  if (rows == 0) return {};
  const auto at16 = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  Deal d{x.as<const float>(), rows,          x.dim[1],     x.stride[0], params.owner,
         out.as<float>(),     out.stride[0], params.first, false};
  d.vector = at16(d.x) && at16(d.out) && d.x_row % 4 == 0 && d.out_row % 4 == 0 && d.first % 4 == 0;
  // From what all ranks know alike: widths differ.
  const int64_t pieces = rows * blocks_for(out.dim[1], kPiece * params.communicator.ranks);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(pieces, kPeerBlocks));
  if (params.communicator.alone()) return launch(stream, "copy_rows", {blocks, kThreads}, copy_rows_kernel, d);
  const Peers* p = peers_of(params.communicator);
  TERN_OP_CHECK(kOp, p != nullptr, "the communicator is none of GPUs");
  return launch(stream, "all_to_all", {blocks, kThreads}, deal_rows_kernel, *p, d);
}

Status all_gather(const ops::AllGatherParams& params, device::Stream stream) {
  constexpr const char* kOp = "all_gather";
  const int64_t n = params.x.dim[0];
  TERN_OP_CHECK(kOp, ops::is_vector(params.x, DType::kI32, n) || ops::is_vector(params.x, DType::kF32, n),
                "x must be [L] of 4 bytes each");
  if (params.communicator.alone() || n == 0) return {};
  const Peers* p = peers_of(params.communicator);
  TERN_OP_CHECK(kOp, p != nullptr && n <= kPeerBlocks * kGathered, "the communicator is none of GPUs, or x too long");
  return launch(stream, "all_gather", {static_cast<unsigned>(blocks_for(n, kGathered)), kFewThreads},
                gather_values_kernel, *p, params.owner, params.x.as<float>(), n);
}

}  // namespace tern::cuda
