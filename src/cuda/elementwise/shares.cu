// What a rank does with the rows that others have: ids of its part of a vocabulary, zeros in place of the rest. An id
// out of range is nobody's, where the CPU would refuse it.
#include <algorithm>

#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void local_ids_kernel(const int32_t* ids, int32_t* local, int64_t n, int64_t first, int64_t count) {
  let_next_start();
  wait_for_previous();
  const int64_t t = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= n) return;
  const int64_t id = ids[t] - first;
  local[t] = id >= 0 && id < count ? static_cast<int32_t>(id) : 0;
}

template <class T>
__device__ void clear_row(T* row, int64_t n, bool vector) {
  if (vector) {
    for (int64_t i = threadIdx.x; i < n / 8; i += kThreads) store8(row + 8 * i, Vec8{});
    return;
  }
  for (int64_t i = threadIdx.x; i < n; i += kThreads) row[i] = from_float<T>(0.0f);
}

template <class T>
__global__ void clear_foreign_kernel(const int32_t* ids, Rows<T> x, int64_t n, int64_t first, int64_t count,
                                     bool vector) {
  let_next_start();
  wait_for_previous();
  const int64_t id = ids[blockIdx.x] - first;
  if (id < 0 || id >= count) clear_row(x.row(blockIdx.x), n, vector);
}

// Rows [*begin, *end) of `most`.
template <class T>
__global__ void clear_range_kernel(const int32_t* begin, const int32_t* end, Rows<T> x, int64_t most, int64_t n,
                                   bool vector) {
  let_next_start();
  wait_for_previous();
  const int64_t from = *begin < 0 ? 0 : *begin, to = *end < most ? *end : most;
  for (int64_t r = from + blockIdx.x; r < to; r += gridDim.x) clear_row(x.row(r), n, vector);
}

}  // namespace

Status vocabulary_ids(const ops::VocabularyIdsParams& p, device::Stream stream) {
  const int64_t n = p.ids.dim[0];
  TERN_OP_CHECK("vocabulary_ids", ops::is_vector(p.ids, DType::kI32, n) && ops::is_vector(p.local, DType::kI32, n),
                "ids and local must be [T] int32");
  if (n == 0) return {};
  return launch(stream, "vocabulary_ids", {static_cast<unsigned>(blocks_for(n, kThreads)), kThreads}, local_ids_kernel,
                p.ids.as<const int32_t>(), p.local.as<int32_t>(), n, p.first, p.count);
}

Status clear_foreign_rows(const ops::ClearForeignRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "clear_foreign_rows";
  const int64_t rows = p.ids.dim[0], n = p.x.dim[1];
  TERN_OP_CHECK(kOp, ops::is_vector(p.ids, DType::kI32, rows), "ids must be [T] int32");
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && ops::is_matrix(p.x, rows, n), "x must be [T, H] of float32 or bfloat16");
  if (rows == 0) return {};
  return with_type(p.x.dtype, [&]<class T>() {
    return launch(stream, "clear_foreign_rows", {static_cast<unsigned>(rows), kThreads}, clear_foreign_kernel<T>,
                  p.ids.as<const int32_t>(), rows_of<T>(p.x), n, p.first, p.count, can_vector(p.x, n));
  });
}

Status clear_experts(const ops::ClearExpertsParams& p, device::Stream stream) {
  constexpr const char* kOp = "clear_experts";
  constexpr int64_t kMostBlocks = 1024;
  const int64_t rows = p.x.dim[0], n = p.x.dim[1], offsets = p.offsets.dim[0];
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && p.x.rank == 2 && ops::is_rows(p.x),
                "x must be [S, H] of float32 or bfloat16");
  TERN_OP_CHECK(kOp, offsets > 0 && ops::is_vector(p.offsets, DType::kI32, offsets), "offsets must be [E + 1] int32");
  if (rows == 0) return {};
  const auto* begin = p.offsets.as<const int32_t>();
  return with_type(p.x.dtype, [&]<class T>() {
    return launch(stream, "clear_experts", {static_cast<unsigned>(std::min(rows, kMostBlocks)), kThreads},
                  clear_range_kernel<T>, begin, begin + offsets - 1, rows_of<T>(p.x), rows, n, can_vector(p.x, n));
  });
}

}  // namespace tern::cuda
