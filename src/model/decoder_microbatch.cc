// A decode step of a small model in parts that run side by side (microbatch.h).
#include <algorithm>

#include "base/checked.h"
#include "model/decoder.h"
#include "model/layers/layers.h"
#include "ops/deferral.h"
#include "ops/linear.h"

namespace tern::model {
namespace {

// Layers whose weights the last cache of a GPU holds while all parts of a step pass: they are read from memory once.
constexpr size_t kSmallLayer = size_t{48} << 20;
// Rows of a part at most. ERNIE-4.5-0.3B on an H200 takes 7 % less for a step of 100 rows in two parts, 7 % more for
// one of 32, 12 % more for one of 256.
constexpr int kMicrobatchRows = 64;

TensorView part_of(TensorView v, int64_t begin, int64_t n) {
  v.data = v.row_bytes(begin);
  v.dim[0] = n;
  return v;
}

// Sequences [begin, begin + n) of a step in which each has one token, as far as layers read it.
Batch part_of(const Batch& whole, int begin, int n) {
  Batch b = whole;
  b.tokens = b.rows = b.logit_rows = n;
  for (TensorView* v : {&b.token_ids, &b.slot_mapping, &b.context_len, &b.block_table}) {
    *v = part_of(*v, begin, n);
  }
  b.row_start = whole.row_start.first(n + 1);  // counts from the part's first token, and every row has one
  return b;
}

// The same of a step, which then lacks what is read of the whole's rows.
Step part_of(const Step& whole, int rows, device::Arena& arena, device::Stream stream) {
  return {.tokens = rows,
          .rows = rows,
          .max_query_len = 1,
          .max_context_len = whole.max_context_len,
          .type = whole.type,
          .arena = arena,
          .stream = stream};
}

}  // namespace

bool Decoder::small_layers() const {
  if (spec_.attention.kind != AttentionKind::kGqa) return false;
  return std::all_of(weights_->layers.begin(), weights_->layers.end(), [](const LayerWeights& l) {
    size_t bytes = 0;
    for (const Linear* w : {&l.gqa.qkv, &l.gqa.out, &l.dense.gate_up, &l.dense.down}) {
      if (!w->weight.valid()) return false;  // experts
      bytes += std::max(w->weight.data.bytes(), static_cast<size_t>(w->weight.n * w->weight.k) * 2);
    }
    return bytes <= kSmallLayer;
  });
}

Status Decoder::microbatch(Step& step, const KvCache* cache, TensorView x, TensorView residual,
                           TensorView delta) const {
  TERN_RETURN_IF_ERROR(plan_attention(step, cache));
  const int layers = step.measuring() ? 1 : spec_.layers;
  for (int i = 0; i < layers; ++i) TERN_RETURN_IF_ERROR(whole_layer(step, cache, i, x, residual, delta));
  return {};
}

size_t Decoder::microbatch_bytes(const Step& step, int rows) const {
  device::Arena arena;  // measures
  Step part = part_of(step, rows, arena, microbatches_->stream(0));
  const TensorView none = tensor2(nullptr, step.type, rows, spec_.hidden_size);
  (void)microbatch(part, nullptr, none, none, none);
  return round_up<size_t>(arena.peak(), 64);
}

Decoder::Cut Decoder::cut_of(const Step& step, int logit_rows) const {
  const bool decodes = step.tokens == step.rows && step.max_query_len == 1;
  // Parts beside each other would have more than one collective under way.
  if (!step.communicator.alone()) return {};
  if (microbatches_ == nullptr || step.measuring() || !decodes || step.probe != nullptr || trims(step, logit_rows))
    return {};
  const int parts = ceil_div(step.tokens, kMicrobatchRows);
  if (parts < 2 || parts > microbatches_->count()) return {};
  const size_t bytes = microbatch_bytes(step, ceil_div(step.tokens, parts));
  return static_cast<size_t>(parts) * bytes <= step.arena.left() ? Cut{parts, bytes} : Cut{};
}

Status Decoder::run_microbatches(Step& step, const KvCache& cache, const Cut& cut, TensorView x, TensorView residual,
                                 TensorView delta) const {
  const Scratch scratch(step.arena);
  const int parts = cut.parts;
  TERN_RETURN_IF_ERROR(ops::end_deferral(step.stream));
  TERN_RETURN_IF_ERROR(microbatches_->fork(step.stream, parts));
  Status status;
  for (int i = 0; i < parts; ++i) {
    const int begin = step.rows * i / parts, n = step.rows * (i + 1) / parts - begin;
    const Batch batch = part_of(*step.batch, begin, n);
    const auto rows = [&](TensorView v) { return part_of(v, begin, n); };
    device::Arena arena(step.arena.take(cut.bytes), cut.bytes);
    Step part = part_of(step, n, arena, microbatches_->stream(i));
    part.cos = rows(step.cos), part.sin = rows(step.sin), part.batch = &batch;
    if (step.type == DType::kBF16) part.product = ops::product_type(part.stream, n);
    ops::begin_deferral(part.stream, n);
    Status done = microbatch(part, &cache, rows(x), rows(residual), rows(delta));
    if (Status closed = ops::end_deferral(part.stream); done.ok()) done = closed;
    if (status.ok()) status = done;
  }
  // Also after a failure: a stream that was forked may be under capture.
  if (Status joined = microbatches_->join(step.stream, parts); status.ok()) status = joined;
  ops::begin_deferral(step.stream, step.tokens);
  return status;
}

}  // namespace tern::model
