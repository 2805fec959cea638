// Logits processors and the arrays of slots. A block per row.
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "cuda/sampling/penalties.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

using ops::SampleRow;
using ops::SlotArrays;
using ops::SlotParams;

constexpr int kThreads = 256;

struct LogitsArgs {
  Rows<float> logits;
  int64_t rows, vocab;
  const SampleRow* items;
  SlotArrays slots;

  __device__ bool valid(const SampleRow& r) const {
    return r.logit_row >= 0 && r.logit_row < rows && r.slot >= 0 && r.slot < slots.slots;
  }
};

template <class T>
__device__ T* list(T* base, int slot, int64_t capacity) {
  return base + int64_t{slot} * capacity;
}

__global__ void mask_kernel(const LogitsArgs a, Rows<const uint32_t> masks, int64_t mask_rows) {
  let_next_start();
  wait_for_previous();
  const SampleRow r = a.items[blockIdx.x];
  if (!a.valid(r) || r.mask_row < 0 || r.mask_row >= mask_rows) return;
  const uint32_t* bits = masks.row(r.mask_row);
  float* x = a.logits.row(r.logit_row);
  for (int64_t id = blockIdx.y * blockDim.x + threadIdx.x; id < a.vocab; id += int64_t{gridDim.y} * blockDim.x) {
    if ((bits[id / 32] >> (id % 32) & 1u) == 0) x[id] = -INFINITY;
  }
}

// An id may be listed twice: its first entry adds all of them, in the order of the list.
__global__ void bias_kernel(const LogitsArgs a) {
  let_next_start();
  wait_for_previous();
  const SampleRow r = a.items[blockIdx.x];
  if (!a.valid(r)) return;
  const int32_t* ids = list(a.slots.bias_ids, r.slot, a.slots.bias_capacity);
  const float* values = list(a.slots.bias_values, r.slot, a.slots.bias_capacity);
  const int count = a.slots.params[r.slot].bias_count;
  float* x = a.logits.row(r.logit_row);
  for (int k = threadIdx.x; k < count; k += blockDim.x) {
    bool first = true;
    for (int i = 0; i < k && first; ++i) first = ids[i] != ids[k];
    if (!first) continue;
    float v = x[ids[k]];
    for (int i = k; i < count; ++i) {
      if (ids[i] == ids[k]) v = __fadd_rn(v, values[i]);
    }
    x[ids[k]] = v;
  }
}

__global__ void min_tokens_kernel(const LogitsArgs a) {
  let_next_start();
  wait_for_previous();
  const SampleRow r = a.items[blockIdx.x];
  if (!a.valid(r)) return;
  const SlotParams& s = a.slots.params[r.slot];
  if (r.generated >= s.min_tokens) return;
  const int32_t* ids = list(a.slots.stop_ids, r.slot, a.slots.stop_capacity);
  for (int k = threadIdx.x; k < s.stop_count; k += blockDim.x) a.logits.row(r.logit_row)[ids[k]] = ops::kMaskedLogit;
}

__global__ void bad_words_kernel(const LogitsArgs a) {
  let_next_start();
  wait_for_previous();
  const SampleRow r = a.items[blockIdx.x];
  if (!a.valid(r)) return;
  const SlotParams& s = a.slots.params[r.slot];
  const int32_t* ids = list(a.slots.bad_ids, r.slot, a.slots.bad_capacity);
  const float never = __fmul_rn(ops::kMaskedLogit, s.temperature);
  for (int k = threadIdx.x; k < s.bad_count; k += blockDim.x) a.logits.row(r.logit_row)[ids[k]] = never;
}

__global__ void penalty_kernel(const LogitsArgs a) {
  let_next_start();
  wait_for_previous();
  const SampleRow r = a.items[blockIdx.x];
  if (!a.valid(r)) return;
  const SlotParams& s = a.slots.params[r.slot];
  if (s.penalised == 0) return;
  penalise(a.logits.row(r.logit_row), 0, a.vocab, s, list(a.slots.seen, r.slot, ops::seen_words(a.slots.vocab)),
           list(a.slots.counts, r.slot, a.slots.vocab), int64_t{blockIdx.y} * blockDim.x + threadIdx.x,
           int64_t{gridDim.y} * blockDim.x);
}

__global__ void reset_kernel(SlotArrays s, int slot) {
  let_next_start();
  wait_for_previous();
  const int64_t words = ops::seen_words(s.vocab), step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < words; i += step) list(s.seen, slot, words)[i] = 0;
  for (int64_t i = first; i < s.vocab; i += step) list(s.counts, slot, s.vocab)[i] = 0;
}

__global__ void mark_kernel(SlotArrays s, int slot, const int32_t* tokens, int64_t count, bool output) {
  let_next_start();
  wait_for_previous();
  auto* seen = reinterpret_cast<unsigned long long*>(list(s.seen, slot, ops::seen_words(s.vocab)));
  int32_t* counts = list(s.counts, slot, s.vocab);
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int32_t id = tokens[i];
    if (id < 0 || id >= s.vocab) continue;
    atomicOr(seen + id / 64, 1ull << (id % 64));
    if (output) atomicAdd(counts + id, 1);
  }
}

Status make_args(const char* op, const ops::LogitsParams& p, LogitsArgs* a) {
  TERN_OP_CHECK(op, p.logits.rank == 2 && p.logits.dtype == DType::kF32 && ops::is_rows(p.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(op, p.count == 0 || p.rows != nullptr, "rows are missing");
  TERN_OP_CHECK(op, p.slots.params != nullptr && p.slots.vocab == p.logits.dim[1], "slots are of another vocabulary");
  *a = {rows_of<float>(p.logits), p.logits.dim[0], p.logits.dim[1], p.rows, p.slots};
  return {};
}

Status per_row(const char* op, const ops::LogitsParams& p, void (*kernel)(const LogitsArgs), unsigned columns,
               device::Stream stream) {
  LogitsArgs a;
  if (Status s = make_args(op, p, &a); !s.ok()) return s;
  if (p.count == 0) return {};
  return launch(stream, op, {dim3(static_cast<unsigned>(p.count), columns), kThreads}, kernel, a);
}

}  // namespace

Status logit_mask(const ops::LogitMaskParams& m, device::Stream stream) {
  LogitsArgs a;
  if (Status s = make_args("logit_mask", m.rows, &a); !s.ok()) return s;
  TERN_OP_CHECK("logit_mask", m.masks.rank == 2 && m.masks.dtype == DType::kI32 && m.masks.dim[1] * 32 >= a.vocab,
                "masks must be [rows, V / 32] int32");
  if (m.rows.count == 0) return {};
  return launch(stream, "logit_mask", {dim3(static_cast<unsigned>(m.rows.count), 16), kThreads}, mask_kernel, a,
                rows_of<const uint32_t>(m.masks), m.masks.dim[0]);
}

Status logit_bias(const ops::LogitsParams& p, device::Stream s) { return per_row("logit_bias", p, bias_kernel, 1, s); }
Status logit_min_tokens(const ops::LogitsParams& p, device::Stream s) {
  return per_row("logit_min_tokens", p, min_tokens_kernel, 1, s);
}
Status logit_penalties(const ops::LogitsParams& p, device::Stream s) {
  return per_row("logit_penalties", p, penalty_kernel, 8, s);
}
Status logit_bad_words(const ops::LogitsParams& p, device::Stream s) {
  return per_row("logit_bad_words", p, bad_words_kernel, 1, s);
}

Status slot_reset(const SlotArrays& s, int slot, device::Stream stream) {
  TERN_OP_CHECK("slot_reset", slot >= 0 && slot < s.slots, "the slot is out of range");
  return launch(stream, "slot_reset", {32, kThreads}, reset_kernel, s, slot);
}

Status slot_mark(const ops::SlotMarkParams& p, device::Stream stream) {
  TERN_OP_CHECK("slot_mark", p.slot >= 0 && p.slot < p.slots.slots, "the slot is out of range");
  if (p.count == 0) return {};
  return launch(stream, "slot_mark", {16, kThreads}, mark_kernel, p.slots, p.slot, p.tokens, p.count, p.output);
}

}  // namespace tern::cuda
