// The limit of reasoning (ops/thinking.h). A block per row that forces, a thread per row that advances.
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

using ops::SampleRow;
using ops::ThinkingState;

constexpr int kThreads = 256;

struct ThinkingArgs {
  Rows<float> logits;
  int64_t rows, vocab;
  const SampleRow* items;
  int count;
  ops::SlotArrays slots;
  const int32_t* ids;

  __device__ bool limited(const SampleRow& r) const {
    return r.logit_row >= 0 && r.logit_row < rows && r.slot >= 0 && r.slot < slots.slots && r.thinking != 0;
  }
};

__global__ void force_kernel(const ThinkingArgs a) {
  let_next_start();
  wait_for_previous();
  const SampleRow r = a.items[blockIdx.x];
  if (!a.limited(r) || r.generated < a.slots.params[r.slot].thinking_limit) return;
  const ThinkingState state = a.slots.thinking_states[r.slot];
  if (state.matched < 0) return;
  const int32_t forced = ops::next_thinking_id(state, ops::thinking_ids(a.slots, r.slot));
  float* x = a.logits.row(r.logit_row);
  for (int64_t id = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; id < a.vocab;
       id += int64_t{gridDim.y} * blockDim.x) {
    x[id] = id == forced ? 0.0f : -INFINITY;
  }
}

__global__ void advance_kernel(const ThinkingArgs a) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= a.count) return;
  const SampleRow r = a.items[i];
  if (!a.limited(r)) return;
  ops::advance_thinking(a.slots.thinking_states[r.slot], ops::thinking_ids(a.slots, r.slot), a.ids[r.logit_row],
                        r.generated >= a.slots.params[r.slot].thinking_limit);
}

Status make_args(const char* op, const ops::LogitsParams& p, ThinkingArgs* a) {
  TERN_OP_CHECK(op, p.logits.rank == 2 && p.logits.dtype == DType::kF32 && ops::is_rows(p.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(op, p.count == 0 || p.rows != nullptr, "rows are missing");
  TERN_OP_CHECK(op, p.slots.params != nullptr && p.slots.vocab == p.logits.dim[1], "slots are of another vocabulary");
  *a = {rows_of<float>(p.logits), p.logits.dim[0], p.logits.dim[1], p.rows, p.count, p.slots, nullptr};
  return {};
}

}  // namespace

Status thinking_force(const ops::LogitsParams& p, device::Stream stream) {
  ThinkingArgs a;
  if (Status s = make_args("thinking_force", p, &a); !s.ok()) return s;
  if (p.count == 0) return {};
  return launch(stream, "thinking_force", {dim3(static_cast<unsigned>(p.count), 8), kThreads}, force_kernel, a);
}

Status thinking_advance(const ops::ThinkingParams& t, device::Stream stream) {
  ThinkingArgs a;
  if (Status s = make_args("thinking_advance", t.rows, &a); !s.ok()) return s;
  TERN_OP_CHECK("thinking_advance", t.ids.rank == 1 && t.ids.dtype == DType::kI32, "ids must be [L] int32");
  if (t.rows.count == 0) return {};
  a.ids = t.ids.as<int32_t>();
  const auto blocks = static_cast<unsigned>((t.rows.count + kThreads - 1) / kThreads);
  return launch(stream, "thinking_advance", {dim3(blocks), kThreads}, advance_kernel, a);
}

}  // namespace tern::cuda
