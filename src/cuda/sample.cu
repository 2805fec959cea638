// Temperature, min-p, top-k, top-p and the draw; a block per row.
#include "cuda/cuda_ops.h"
#include "cuda/launch.cuh"
#include "cuda/sample_draw.cuh"
#include "cuda/sample_team.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

__global__ void __launch_bounds__(kRowThreads) sample_kernel(Rows<const float> logits, int64_t logit_rows, int n,
                                                             const SampleRow* rows, SlotArrays slots, SampleOut out) {
  extern __shared__ __align__(16) char memory[];
  auto& sh = *reinterpret_cast<DrawShared*>(memory);
  if (gridDim.x <= 32) let_next_start();  // else its blocks would crowd together on what is free
  wait_for_previous();
  const SampleRow r = rows[blockIdx.x];
  if (r.logit_row < 0 || r.logit_row >= logit_rows || r.slot < 0 || r.slot >= slots.slots) return;
  const SlotParams s = slots.params[r.slot];
  const Draw d = draw(logits.row(r.logit_row), n, s, row_random(r, s), out.probs != nullptr, sh.fast, sh.row);
  if (threadIdx.x == 0) finish_row(r, s, slots, d, out);
}

}  // namespace

size_t sample_workspace(device::Stream, int64_t) { return team_workspace(); }

Status sample(const ops::SampleParams& p, device::Stream stream) {
  constexpr const char* kOp = "sample";
  const ops::LogitsParams& in = p.rows;
  TERN_OP_CHECK(kOp, in.logits.rank == 2 && in.logits.dtype == DType::kF32 && ops::is_rows(in.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(
      kOp,
      p.ids.rank == 1 && p.ids.dtype == DType::kI32 && p.status.dtype == DType::kI32 && p.status.dim[0] >= p.ids.dim[0],
      "ids and status must be [L] int32");
  TERN_OP_CHECK(kOp, in.logits.dim[1] <= 0x7fffffff, "the vocabulary is too large");
  if (in.count == 0) return {};
  TERN_OP_CHECK(kOp, in.rows != nullptr, "rows are missing");
  const int64_t rows = in.logits.dim[0] < p.ids.dim[0] ? in.logits.dim[0] : p.ids.dim[0];
  if (team_fits(p, stream)) return sample_team(p, rows, stream);
  const size_t bytes = draw_bytes(in.count, stream);
  if (Status s = allow_shared(kOp, sample_kernel, bytes); !s.ok()) return s;
  const SampleOut out{p.ids.as<int32_t>(), p.status.as<int32_t>(), p.probs.empty() ? nullptr : p.probs.as<float>()};
  return launch(stream, "sample", {static_cast<unsigned>(in.count), kRowThreads, bytes}, sample_kernel,
                rows_of<const float>(in.logits), rows, static_cast<int>(in.logits.dim[1]), in.rows, in.slots, out);
}

}  // namespace tern::cuda
