// What a token was drawn from: the entropy of its row, and the ids that truncation left; a block per row.
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "cuda/sampling/sample_draw.cuh"
#include "ops/draw_facts.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

using ops::DrawFactsRow;

struct FactsOut {
  float* entropy;  // null: not wanted
  uint32_t* kept;  // null: not wanted
  int64_t words;   // of a row of it
};

// With d = x * scale - top: log(sum exp(d)) - sum(d * exp(d)) / sum exp(d).
__device__ float entropy_of(const float* x, int n, float scale, const RowMax& best, RowShared& sh) {
  if (best.nan || best.max == -INFINITY) return nanf("");
  const float top = __fmul_rn(best.max, scale);
  if (!isfinite(top)) return 0.0f;
  double sum = 0.0, weighted = 0.0;
  for (int i = threadIdx.x; i < n; i += kRowThreads) {
    const float d = __fsub_rn(__fmul_rn(x[i], scale), top);
    if (!(d > -80.0f)) continue;
    const double e = static_cast<double>(exp_of(d));
    sum += e, weighted += e * static_cast<double>(d);
  }
  sum = row_sum_double(sum, sh);
  weighted = row_sum_double(weighted, sh);
  return static_cast<float>(fmax(0.0, log(sum) - weighted / sum));
}

__device__ void write_kept(const float* x, int n, const DrawFactsRow& r, const RowMax& best, uint32_t* bits,
                           int64_t words, RowShared& sh) {
  const bool none = best.nan || best.max == -INFINITY;
  const float top = __fmul_rn(best.max, r.scale);
  const bool one = !none && (!isfinite(top) || r.greedy != 0 || r.top_k == 1 || r.top_p < 1e-5f);
  Kept kept{r.scale, top, ordered_bits(best.max)};
  if (!none && !one) truncate(x, n, r, kept_mass(x, n, kept, sh), kept, sh);
  const int lane = threadIdx.x % 32;
  for (int64_t w = threadIdx.x / 32; w < words; w += kRowWarps) {
    const int id = static_cast<int>(32 * w) + lane;
    bool in = one && id == best.index;
    if (!none && !one && id < n) in = kept.weight(x[id], id, kept.offset(x[id])) != 0;
    const unsigned word = __ballot_sync(0xffffffffu, in);
    if (lane == 0) bits[w] = word;
  }
}

__global__ void __launch_bounds__(kRowThreads)
    draw_facts_kernel(Rows<const float> logits, int64_t logit_rows, int n, const DrawFactsRow* rows, FactsOut out) {
  __shared__ RowShared sh;
  let_next_start();
  wait_for_previous();
  const DrawFactsRow r = rows[blockIdx.x];
  if (r.logit_row < 0 || r.logit_row >= logit_rows) return;
  const float* x = logits.row(r.logit_row);
  const RowMax best = row_max(x, n, sh);
  if (out.entropy != nullptr) {
    const float value = entropy_of(x, n, r.scale, best, sh);
    if (threadIdx.x == 0) out.entropy[r.out] = value;
  }
  if (out.kept != nullptr) write_kept(x, n, r, best, out.kept + r.out * out.words, out.words, sh);
}

}  // namespace

Status draw_facts(const ops::DrawFactsParams& p, device::Stream stream) {
  constexpr const char* kOp = "draw_facts";
  const int64_t vocab = p.logits.dim[1];
  TERN_OP_CHECK(kOp, p.logits.rank == 2 && p.logits.dtype == DType::kF32 && ops::is_rows(p.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(kOp, p.kept.empty() || (p.kept.rank == 2 && p.kept.dim[1] == (vocab + 31) / 32 && ops::is_rows(p.kept)),
                "kept must be [R, (V + 31) / 32] int32");
  if (p.count == 0) return {};
  TERN_OP_CHECK(kOp, p.rows != nullptr, "rows are missing");
  const FactsOut out{p.entropy.empty() ? nullptr : p.entropy.as<float>(),
                     p.kept.empty() ? nullptr : p.kept.as<uint32_t>(), (vocab + 31) / 32};
  return launch(stream, "draw_facts", {static_cast<unsigned>(p.count), kRowThreads}, draw_facts_kernel,
                rows_of<const float>(p.logits), p.logits.dim[0], static_cast<int>(vocab), p.rows, out);
}

}  // namespace tern::cuda
