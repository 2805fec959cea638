// Log-probabilities of a token and of the most likely ones; a block per row. Nothing is sorted but what is given out.
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "cuda/sampling/sample_row.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

using ops::LogprobRow;
using ops::TokenScore;

struct Normaliser {
  double log_sum;
  float lowest;  // logits below it have no mass
};

__device__ Normaliser normalise(const float* x, int n, const LogprobRow& r, float largest, RowShared& sh) {
  const float top = __fmul_rn(largest, r.scale);
  if (!isfinite(top)) return {0.0, -INFINITY};
  if (!(r.top_p < 1.0f)) {
    double sum = 0.0;
    for (int i = threadIdx.x; i < n; i += kRowThreads) sum += static_cast<double>(exp_term(x[i], r.scale, top));
    return {log(row_sum_double(sum, sh)), -INFINITY};
  }
  const uint32_t base = ordered_bits(largest);
  const auto offset = [&](int i) { return base - ordered_bits(x[i]); };
  unsigned long long mass = 0;
  uint32_t furthest = 0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) {
    const uint32_t w = weight_of(x[i], r.scale, top);
    mass += w;
    if (w != 0) furthest = max(furthest, offset(i));
  }
  mass = row_sum(mass, sh);
  furthest = row_largest(furthest, sh);
  const double limit = fmax(1.0, ceil(__dmul_rn(static_cast<double>(r.top_p), __ull2double_rn(mass))));
  const Selected s = select_offset(
      n, furthest, static_cast<unsigned long long>(limit), sh,
      [&](int i, uint32_t) { return static_cast<unsigned long long>(weight_of(x[i], r.scale, top)); }, offset);
  unsigned long long kept = 0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) {
    if (offset(i) <= s.offset) kept += weight_of(x[i], r.scale, top);
  }
  kept = row_sum(kept, sh);
  const uint32_t bits = base - s.offset;
  const float lowest = __uint_as_float((bits & 0x80000000u) != 0 ? bits ^ 0x80000000u : ~bits);
  return {log(__ull2double_rn(kept) / 1073741824.0), lowest};
}

// The r.top largest values into out[0 .. top), in order, ties by lowest id: their threshold is selected, they are
// collected in any order, and each finds its place by counting who is better.
__device__ void largest_values(const float* x, int n, const LogprobRow& r, float largest, TokenScore* out,
                               RowShared& sh) {
  const int top = r.top < n ? r.top : n;
  if (top <= 0) return;
  const uint32_t base = ordered_bits(largest);
  const auto offset = [&](int i) { return base - ordered_bits(x[i]); };
  uint32_t furthest = 0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) furthest = max(furthest, offset(i));
  furthest = row_largest(furthest, sh);
  const Selected s = select_offset(
      n, furthest, static_cast<unsigned long long>(top), sh, [](int, uint32_t) { return 1ull; }, offset);
  int last_tie = 0x7fffffff;
  if (s.mass > s.left) {
    last_tie = walk(n, s.left - 1, sh, [&](int i) { return static_cast<unsigned long long>(offset(i) == s.offset); });
  }
  __syncthreads();
  if (threadIdx.x == 0) sh.other = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kRowThreads) {
    const uint32_t o = offset(i);
    if (o < s.offset || (o == s.offset && i <= last_tie)) out[atomicAdd(&sh.other, 1u)].id = i;
  }
  __syncthreads();
  // `rank` holds the place until everyone has read all ids.
  for (int c = threadIdx.x; c < top; c += kRowThreads) {
    const int id = out[c].id;
    const uint32_t o = offset(id);
    int place = 0;
    for (int k = 0; k < top; ++k) {
      const int other = out[k].id;
      const uint32_t p = offset(other);
      place += p < o || (p == o && other < id);
    }
    out[c].rank = place;
  }
  __syncthreads();
  for (int c = threadIdx.x; c < top; c += kRowThreads) out[out[c].rank].value = __int_as_float(out[c].id);
  __syncthreads();
  for (int c = threadIdx.x; c < top; c += kRowThreads) out[c].id = __float_as_int(out[c].value), out[c].rank = c + 1;
  __syncthreads();
}

__global__ void __launch_bounds__(kRowThreads)
    logprob_kernel(Rows<const float> logits, int64_t logit_rows, int n, const LogprobRow* rows, const int32_t* ids,
                   TokenScore* all) {
  __shared__ RowShared sh;
  let_next_start();
  wait_for_previous();
  const LogprobRow r = rows[blockIdx.x];
  if (r.logit_row < 0 || r.logit_row >= logit_rows) return;
  const float* x = logits.row(r.logit_row);
  const int target = r.target >= 0 ? r.target : ids[r.sampled_row];
  TokenScore* out = all + r.out;
  const RowMax best = row_max(x, n, sh);
  if (best.nan || target >= n) {
    for (int i = threadIdx.x; i <= r.top; i += kRowThreads) out[i] = {i == 0 ? target : i - 1, nanf(""), 0};
    return;
  }
  Normaliser norm{0.0, -INFINITY};
  if (r.logits == 0) norm = normalise(x, n, r, best.max, sh);
  const float top = __fmul_rn(best.max, r.scale);
  const auto value = [&](float v) {
    const float y = __fmul_rn(v, r.scale);
    if (r.logits != 0) return y;
    if (v < norm.lowest) return -INFINITY;
    if (!isfinite(top)) return v == best.max ? 0.0f : -INFINITY;
    return static_cast<float>(static_cast<double>(y) - static_cast<double>(top) - norm.log_sum);
  };
  largest_values(x, n, r, best.max, out + 1, sh);
  for (int i = threadIdx.x; i < r.top && i < n; i += kRowThreads) out[1 + i].value = value(x[out[1 + i].id]);
  unsigned long long above = 0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) above += x[i] > x[target];
  above = row_sum(above, sh);
  if (threadIdx.x == 0) out[0] = {target, value(x[target]), static_cast<int32_t>(above) + 1};
}

__global__ void capture_kernel(Rows<const float> from, int64_t from_rows, const int32_t* rows, Rows<float> to, int n) {
  let_next_start();
  wait_for_previous();
  const int32_t r = rows[blockIdx.x];
  if (r < 0 || r >= from_rows) return;
  for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < n; i += gridDim.y * blockDim.x) {
    to.row(blockIdx.x)[i] = from.row(r)[i];
  }
}

}  // namespace

Status token_logprobs(const ops::LogprobParams& p, device::Stream stream) {
  constexpr const char* kOp = "token_logprobs";
  TERN_OP_CHECK(kOp, p.logits.rank == 2 && p.logits.dtype == DType::kF32 && ops::is_rows(p.logits),
                "logits must be [L, V] f32");
  if (p.count == 0) return {};
  TERN_OP_CHECK(kOp, p.rows != nullptr && p.out != nullptr, "rows or out are missing");
  return launch(stream, "token_logprobs", {static_cast<unsigned>(p.count), kRowThreads}, logprob_kernel,
                rows_of<const float>(p.logits), p.logits.dim[0], static_cast<int>(p.logits.dim[1]), p.rows,
                p.ids.as<const int32_t>(), p.out);
}

Status capture_logits(const ops::CaptureParams& p, device::Stream stream) {
  constexpr const char* kOp = "capture_logits";
  TERN_OP_CHECK(kOp,
                p.from.rank == 2 && p.from.dtype == DType::kF32 && p.to.rank == 2 && p.to.dtype == DType::kF32 &&
                    p.to.dim[0] >= p.count && p.to.dim[1] == p.from.dim[1],
                "from and to must be [L, V] f32");
  if (p.count == 0) return {};
  const dim3 grid(static_cast<unsigned>(p.count), 16);
  return launch(stream, "capture_logits", {grid, 256}, capture_kernel, rows_of<const float>(p.from), p.from.dim[0],
                p.rows, rows_of<float>(p.to), static_cast<int>(p.from.dim[1]));
}

}  // namespace tern::cuda
