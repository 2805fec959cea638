#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/sample/sample_row.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/draw_facts.h"
#include "ops/op_check.h"
#include "ops/sample_random.h"

namespace tern::ops::cpu {
namespace {

static_assert(static_cast<int32_t>(kernels::SampleRowStatus::kNan) == kSampleNan);
static_assert(static_cast<int32_t>(kernels::SampleRowStatus::kEmpty) == kSampleEmpty);
static_assert(sizeof(kernels::Candidate) == sizeof(TokenScore));

size_t space_bytes(int64_t vocab) { return (kernels::RowSpace::bytes(vocab) + 63) / 64 * 64; }

// f(item, space) for every item; a thread takes the next item when it is free and keeps its own scratch.
template <class F>
void for_items(device::Stream stream, int count, int64_t vocab, void* workspace, F&& f) {
  const int parts = std::min(count, thread_count(stream));
  std::atomic<int> next{0};
  for_parts(stream, parts, [&](int part) {
    char* memory = static_cast<char*>(workspace) + static_cast<size_t>(part) * space_bytes(vocab);
    const kernels::RowSpace space = kernels::RowSpace::make(memory, vocab);
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) f(i, space);
  });
}

const float* row(const TensorView& v, int64_t i) { return reinterpret_cast<const float*>(v.row_bytes(i)); }

}  // namespace

size_t sample_workspace(device::Stream stream, int64_t vocab) {
  return static_cast<size_t>(thread_count(stream)) * space_bytes(vocab);
}

Status sample(const SampleParams& p, device::Stream stream) {
  constexpr const char* kOp = "sample";
  const LogitsParams& in = p.rows;
  const int64_t vocab = in.logits.dim[1];
  TERN_OP_CHECK(kOp, in.logits.rank == 2 && in.logits.dtype == DType::kF32 && is_rows(in.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(
      kOp,
      p.ids.rank == 1 && p.ids.dtype == DType::kI32 && p.status.dtype == DType::kI32 && p.status.dim[0] >= p.ids.dim[0],
      "ids and status must be [L] int32");
  TERN_OP_CHECK(kOp, in.count == 0 || (in.rows != nullptr && p.workspace != nullptr), "rows or workspace are missing");
  for (int i = 0; i < in.count; ++i) {
    const SampleRow& r = in.rows[i];
    if (!r.is_row()) continue;
    TERN_OP_CHECK(kOp, r.logit_row < in.logits.dim[0] && r.logit_row < p.ids.dim[0], "a logit row is out of range");
    TERN_OP_CHECK(kOp, r.slot >= 0 && r.slot < in.slots.slots, "a slot is out of range");
  }
  if (p.penalise) TERN_RETURN_IF_ERROR(cpu::logit_penalties(in, stream));
  const kernels::SampleKernels& k = kernels::sample_kernels();
  for_items(stream, in.count, vocab, p.workspace, [&](int i, const kernels::RowSpace& space) {
    const SampleRow& r = in.rows[i];
    if (!r.is_row()) return;
    const SlotParams& s = in.slots.params[r.slot];
    kernels::SampleRowArgs a;
    a.x = row(in.logits, r.logit_row), a.n = vocab;
    a.scale = s.scale, a.top_p = s.top_p, a.min_p = s.min_p, a.top_k = s.top_k;
    a.greedy = s.greedy != 0;
    a.want_prob = !p.probs.empty();
    if (!a.greedy) a.random = random_bits(s.seed, static_cast<uint32_t>(r.position), static_cast<uint32_t>(r.draw));
    const kernels::SampleRowResult result = sample_row(k, a, space);
    p.ids.as<int32_t>()[r.logit_row] = result.id;
    p.status.as<int32_t>()[r.logit_row] = static_cast<int32_t>(result.status);
    if (a.want_prob) p.probs.as<float>()[r.logit_row] = result.prob;
  });
  // Two rows may share a slot (speculation): marks are made one after the other.
  for (int i = 0; i < in.count; ++i) {
    const SampleRow& r = in.rows[i];
    if (!r.is_row()) continue;
    if (in.slots.params[r.slot].penalised) mark_token(in.slots, r.slot, p.ids.as<int32_t>()[r.logit_row], true);
  }
  return {};
}

Status token_logprobs(const LogprobParams& p, device::Stream stream) {
  constexpr const char* kOp = "token_logprobs";
  const int64_t vocab = p.logits.dim[1];
  TERN_OP_CHECK(kOp, p.logits.rank == 2 && p.logits.dtype == DType::kF32 && is_rows(p.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(kOp, p.count == 0 || (p.rows != nullptr && p.workspace != nullptr && p.out != nullptr),
                "rows, workspace or out are missing");
  for (int i = 0; i < p.count; ++i) {
    const LogprobRow& r = p.rows[i];
    TERN_OP_CHECK(kOp, r.logit_row >= 0 && r.logit_row < p.logits.dim[0], "a logit row is out of range");
    TERN_OP_CHECK(kOp, r.target < vocab && r.top >= 0 && r.top <= vocab, "a target or count is out of range");
    TERN_OP_CHECK(kOp, r.target >= 0 || (r.sampled_row >= 0 && r.sampled_row < p.ids.dim[0]),
                  "a sampled row is out of range");
  }
  const kernels::SampleKernels& k = kernels::sample_kernels();
  for_items(stream, p.count, vocab, p.workspace, [&](int i, const kernels::RowSpace& space) {
    const LogprobRow& r = p.rows[i];
    kernels::LogprobArgs a;
    a.x = row(p.logits, r.logit_row), a.n = vocab;
    a.scale = r.scale, a.top_p = r.top_p, a.logits = r.logits != 0, a.top = r.top;
    a.target = r.target >= 0 ? r.target : p.ids.as<int32_t>()[r.sampled_row];
    kernels::logprobs(k, a, space, reinterpret_cast<kernels::Candidate*>(p.out + r.out));
  });
  return {};
}

Status capture_logits(const CaptureParams& p, device::Stream stream) {
  constexpr const char* kOp = "capture_logits";
  TERN_OP_CHECK(kOp,
                p.from.rank == 2 && p.from.dtype == DType::kF32 && p.to.rank == 2 && p.to.dtype == DType::kF32 &&
                    p.to.dim[0] >= p.count && p.to.dim[1] == p.from.dim[1],
                "from and to must be [L, V] f32");
  for (int i = 0; i < p.count; ++i) {
    TERN_OP_CHECK(kOp, p.rows[i] >= 0 && p.rows[i] < p.from.dim[0], "a row is out of range");
  }
  for_parts_dynamic(stream, p.count, [&](int i) {
    std::memcpy(p.to.row_bytes(i), p.from.row_bytes(p.rows[i]), static_cast<size_t>(p.from.dim[1]) * sizeof(float));
  });
  return {};
}

Status draw_facts(const DrawFactsParams& p, device::Stream stream) {
  constexpr const char* kOp = "draw_facts";
  const int64_t vocab = p.logits.dim[1];
  TERN_OP_CHECK(kOp, p.logits.rank == 2 && p.logits.dtype == DType::kF32 && is_rows(p.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(kOp, p.entropy.empty() || (p.entropy.rank == 1 && p.entropy.dtype == DType::kF32),
                "entropy must be [R] f32");
  TERN_OP_CHECK(
      kOp, p.kept.empty() || (p.kept.rank == 2 && p.kept.dtype == DType::kI32 && p.kept.dim[1] == (vocab + 31) / 32),
      "kept must be [R, (V + 31) / 32] int32");
  TERN_OP_CHECK(kOp, p.count == 0 || (p.rows != nullptr && p.workspace != nullptr), "rows or workspace are missing");
  for (int i = 0; i < p.count; ++i) {
    const DrawFactsRow& r = p.rows[i];
    TERN_OP_CHECK(kOp, r.logit_row >= 0 && r.logit_row < p.logits.dim[0], "a logit row is out of range");
    TERN_OP_CHECK(
        kOp, r.out >= 0 && (p.entropy.empty() || r.out < p.entropy.dim[0]) && (p.kept.empty() || r.out < p.kept.dim[0]),
        "a place for results is out of range");
  }
  const kernels::SampleKernels& k = kernels::sample_kernels();
  for_items(stream, p.count, vocab, p.workspace, [&](int i, const kernels::RowSpace& space) {
    const DrawFactsRow& r = p.rows[i];
    kernels::SampleRowArgs a;
    a.x = row(p.logits, r.logit_row), a.n = vocab;
    a.scale = r.scale, a.top_p = r.top_p, a.min_p = r.min_p, a.top_k = r.top_k, a.greedy = r.greedy != 0;
    if (!p.entropy.empty()) p.entropy.as<float>()[r.out] = kernels::entropy(k, a.x, a.n, a.scale);
    if (!p.kept.empty()) kept_ids(k, a, space, reinterpret_cast<uint32_t*>(p.kept.row_bytes(r.out)));
  });
  return {};
}

}  // namespace tern::ops::cpu
