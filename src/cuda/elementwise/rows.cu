// Rows by index: embeddings, gathers, scatters, interpolation. What indices hold is known to the device only: an index
// out of range is skipped here, where the CPU would refuse it.
#include <algorithm>

#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 128;

template <class T, class O>
__device__ void copy_row(const T* from, O* to, int64_t n, bool vector) {
  const int64_t first = blockIdx.y * blockDim.x + threadIdx.x, step = int64_t{gridDim.y} * blockDim.x;
  if (vector) {
    for (int64_t i = first; i < n / 8; i += step) store8(to + 8 * i, load8(from + 8 * i));
    return;
  }
  for (int64_t i = first; i < n; i += step) to[i] = from_float<O>(as_float(from[i]));
}

// out[i] = x[rows[i]].
template <class T, class O>
__global__ void gather_kernel(Rows<const T> x, int64_t count, const int32_t* rows, Rows<O> out, int64_t n,
                              bool vector) {
  let_next_start();
  wait_for_previous();
  const int32_t r = rows[blockIdx.x];
  if (r < 0 || r >= count) return;
  copy_row(x.row(r), out.row(blockIdx.x), n, vector);
}

// out[rows[i]] = x[i].
template <class T, class O>
__global__ void scatter_kernel(Rows<const T> x, const int32_t* rows, Rows<O> out, int64_t count, int64_t n,
                               bool vector) {
  let_next_start();
  wait_for_previous();
  const int32_t r = rows[blockIdx.x];
  if (r < 0 || r >= count) return;
  copy_row(x.row(blockIdx.x), out.row(r), n, vector);
}

// Changes of a table, by place.
struct Changes {
  const int32_t* list = nullptr;  // pairs of place and value
  int64_t count = 0;
  int32_t* table = nullptr;
  int64_t places = 0;
};

__global__ void resolve_kernel(int32_t* ids, const int32_t* source, const int32_t* previous, int64_t n, int64_t most,
                               const Changes changes) {
  let_next_start();
  wait_for_previous();
  const int64_t t = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t < n && source[t] >= 0 && source[t] < most) ids[t] = previous[source[t]];
  if (t >= changes.count) return;
  const int32_t place = changes.list[2 * t];
  if (place >= 0 && place < changes.places) changes.table[place] = changes.list[2 * t + 1];
}

template <class T>
__global__ void interpolate_kernel(Rows<const T> table, int64_t count, const int32_t* rows, const float* weights,
                                   int64_t k, Rows<float> out, int64_t n) {
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  for (int64_t i = blockIdx.y * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.y} * blockDim.x) {
    float sum = 0.0f;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t r = rows[t * k + j];
      if (r >= 0 && r < count) sum += weights[t * k + j] * as_float(table.row(r)[i]);
    }
    out.row(t)[i] += sum;
  }
}

__device__ __forceinline__ float4 four(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ __forceinline__ float4 four(const bf* p) { return unpack_four(*reinterpret_cast<const uint2*>(p)); }

// The same, four values a thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    interpolate_fours_kernel(Rows<const T> table, int64_t count, const int32_t* rows, const float* weights, int k,
                             Rows<float> out, int64_t n) {
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x, i = 4 * (int64_t{blockIdx.y} * kThreads + threadIdx.x);
  if (i >= n) return;
  float4 sum{};
#pragma unroll 4
  for (int j = 0; j < k; ++j) {
    const int32_t r = rows[t * k + j];
    if (r < 0 || r >= count) continue;
    const float w = weights[t * k + j];
    const float4 x = four(table.row(r) + i);
    sum.x += w * x.x, sum.y += w * x.y, sum.z += w * x.z, sum.w += w * x.w;
  }
  float* to = out.row(t) + i;
  const float4 x = four(to);
  *reinterpret_cast<float4*>(to) = make_float4(x.x + sum.x, x.y + sum.y, x.z + sum.z, x.w + sum.w);
}

dim3 grid_of(int64_t rows, int64_t n, bool vector) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(blocks_for(vector ? n / 8 : n, 4 * kThreads)));
}

Status gather(const char* op, const TensorView& x, const TensorView& rows, const TensorView& out,
              device::Stream stream) {
  const int64_t count = out.dim[0], n = x.dim[1];
  TERN_OP_CHECK(op, ops::is_act(x.dtype) && x.rank == 2 && ops::is_rows(x), "the source must be rows of f32 or bf16");
  TERN_OP_CHECK(op, ops::is_act(out.dtype) && ops::is_matrix(out, count, n), "out must be rows of the same length");
  TERN_OP_CHECK(op, ops::is_vector(rows, DType::kI32, rows.dim[0]) && rows.dim[0] == count, "rows must be int32");
  if (count == 0) return {};
  const bool vector = can_vector(x, n) && can_vector(out, n);
  return with_type(x.dtype, [&]<class T>() {
    return with_type(out.dtype, [&]<class O>() {
      return launch(stream, vector ? "gather_vector" : "gather_scalar", {grid_of(count, n, vector), kThreads},
                    gather_kernel<T, O>, rows_of<const T>(x), x.dim[0], rows.as<const int32_t>(), rows_of<O>(out), n,
                    vector);
    });
  });
}

}  // namespace

Status embedding(const ops::EmbeddingParams& p, device::Stream stream) {
  TERN_OP_CHECK("embedding", p.out.rank == 2, "out must be [T, H]");
  if (p.packed != nullptr) {
    TERN_OP_CHECK("embedding", p.packed->valid() && p.packed->k == p.out.dim[1], "the packed table must be [V, H]");
    return p.packed->format->gather_rows(*p.packed, p.ids, p.out, stream);
  }
  return gather("embedding", p.table, p.ids, p.out, stream);
}

Status gather_rows(const ops::GatherRowsParams& p, device::Stream stream) {
  return gather("gather_rows", p.x, p.rows, p.out, stream);
}

Status take_rows(const ops::TakeRowsParams& p, device::Stream stream) {
  return gather("take_rows", p.x, p.rows, p.out, stream);
}

Status scatter_rows(const ops::ScatterRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "scatter_rows";
  const int64_t count = p.x.dim[0], n = p.x.dim[1];
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && p.x.rank == 2 && ops::is_rows(p.x), "x must be [N, H]");
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && ops::is_matrix(p.out, p.out.dim[0], n), "out must be [P, H]");
  TERN_OP_CHECK(kOp, ops::is_vector(p.rows, DType::kI32, count), "rows must be [N] int32");
  if (count == 0) return {};
  const bool vector = can_vector(p.x, n) && can_vector(p.out, n);
  return with_type(p.x.dtype, [&]<class T>() {
    return with_type(p.out.dtype, [&]<class O>() {
      return launch(stream, vector ? "scatter_vector" : "scatter_scalar", {grid_of(count, n, vector), kThreads},
                    scatter_kernel<T, O>, rows_of<const T>(p.x), p.rows.as<const int32_t>(), rows_of<O>(p.out),
                    p.out.dim[0], n, vector);
    });
  });
}

Status resolve_ids(const ops::ResolveIdsParams& p, device::Stream stream) {
  constexpr const char* kOp = "resolve_ids";
  const int64_t n = p.ids.dim[0];
  TERN_OP_CHECK(kOp, ops::is_vector(p.ids, DType::kI32, n) && ops::is_vector(p.source, DType::kI32, n),
                "ids and source must be [T] int32");
  TERN_OP_CHECK(kOp, p.previous.rank == 0 || ops::is_vector(p.previous, DType::kI32, p.previous.dim[0]),
                "previous must be [P] int32");
  const int64_t most = p.previous.rank == 0 ? 0 : p.previous.dim[0];
  Changes c;
  if (p.changes.rank != 0) {
    TERN_OP_CHECK(kOp, ops::changes_fit(p), "changes must be [C, 2] int32, table [R, B] int32");
    c = {p.changes.as<const int32_t>(), p.changes.dim[0], p.table.as<int32_t>(), p.table.dim[0] * p.table.dim[1]};
  }
  const int64_t all = std::max<int64_t>(most == 0 ? 0 : n, c.count);
  if (all == 0) return {};
  return launch(stream, "resolve_ids", {static_cast<unsigned>(blocks_for(all, 256)), 256}, resolve_kernel,
                p.ids.as<int32_t>(), p.source.as<const int32_t>(), p.previous.as<const int32_t>(), n, most, c);
}

Status interpolate_rows(const ops::InterpolateRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "interpolate_rows";
  TERN_OP_CHECK(kOp, ops::is_act(p.table.dtype) && p.table.rank == 2 && ops::is_rows(p.table), "table must be [R, H]");
  const int64_t tokens = p.out.dim[0], n = p.table.dim[1], j = p.rows.dim[1];
  TERN_OP_CHECK(kOp, p.out.dtype == DType::kF32 && ops::is_matrix(p.out, tokens, n), "out must be [T, H] float32");
  TERN_OP_CHECK(kOp,
                p.rows.dtype == DType::kI32 && ops::is_matrix(p.rows, tokens, j) && j <= 16 &&
                    (tokens <= 1 || p.rows.stride[0] == j),
                "rows must be [T, J] int32, contiguous");
  TERN_OP_CHECK(kOp,
                p.weights.dtype == DType::kF32 && ops::is_matrix(p.weights, tokens, j) &&
                    (tokens <= 1 || p.weights.stride[0] == j),
                "weights must be [T, J] float32, contiguous");
  if (tokens == 0) return {};
  const bool fours = can_vector(p.table, n) && can_vector(p.out, n);
  return with_type(p.table.dtype, [&]<class T>() {
    if (fours) {
      const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(blocks_for(n / 4, kThreads)));
      return launch(stream, "interpolate_fours", {grid, kThreads}, interpolate_fours_kernel<T>,
                    rows_of<const T>(p.table), p.table.dim[0], p.rows.as<const int32_t>(), p.weights.as<const float>(),
                    static_cast<int>(j), rows_of<float>(p.out), n);
    }
    return launch(stream, "interpolate_rows", {grid_of(tokens, n, false), kThreads}, interpolate_kernel<T>,
                  rows_of<const T>(p.table), p.table.dim[0], p.rows.as<const int32_t>(), p.weights.as<const float>(), j,
                  rows_of<float>(p.out), n);
  });
}

}  // namespace tern::cuda
