#include "model/layers/layers.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace tern::model {

Status dense_mlp(Step& step, const DenseWeights& w, TensorView x, TensorView out) {
  const Scratch scratch(step.arena);
  const TensorView gate_up = step.exact(step.tokens, w.gate_up.weight.n);
  const TensorView gated = step.act(step.tokens, w.down.weight.k);
  if (step.measuring()) return {};
  TERN_RETURN_IF_ERROR(ops::linear({x, &w.gate_up.weight, w.gate_up.bias, gate_up}, step.stream));
  TERN_RETURN_IF_ERROR(ops::silu_mul({gate_up, gated}, step.stream));
  return ops::linear({gated, &w.down.weight, w.down.bias, out}, step.stream);
}

namespace {

// Chooses experts for every token; a probe may replace the choice.
Status route(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, TensorView x, TensorView logits,
             TensorView ids, TensorView weights) {
  TERN_RETURN_IF_ERROR(ops::linear({x, &w.router, {}, logits}, step.stream));
  ops::MoeRouteParams p{.logits = logits,
                        .bias = w.correction_bias,
                        .scoring = spec.scoring,
                        .top_k = spec.top_k,
                        .n_group = spec.n_group,
                        .topk_group = spec.topk_group,
                        .renormalize = spec.renormalize,
                        .renorm_eps = spec.renorm_eps,
                        .renorm_min = spec.renorm_min,
                        .scale = spec.scale,
                        .ids = ids,
                        .weights = weights};
  TERN_RETURN_IF_ERROR(ops::moe_route(p, step.stream));
  if (step.probe == nullptr || !step.probe->routing(layer, ids)) return {};
  p.forced = true;
  return ops::moe_route(p, step.stream);
}

}  // namespace

Status moe_mlp(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, TensorView x, TensorView out) {
  const Scratch scratch(step.arena);
  const int64_t t = step.tokens, k = spec.top_k, h = x.dim[1];
  const bool shared = w.shared.down.weight.valid(), gated = w.shared_gate.valid();
  const TensorView logits = step.arena.tensor(DType::kF32, t, spec.experts);
  const TensorView ids = step.arena.tensor(DType::kI32, t, k);
  const TensorView weights = step.arena.tensor(DType::kF32, t, k);
  const TensorView offsets = step.arena.tensor(DType::kI32, spec.experts + 1);
  const TensorView row_of = step.arena.tensor(DType::kI32, t, k);
  const TensorView sorted = step.act(t * k, h);
  const TensorView gate_up = step.exact(t * k, w.gate_up.front().n);
  const TensorView hidden = step.act(t * k, w.down.front().k);
  const TensorView results = step.exact(t * k, h);
  const TensorView shared_out = shared ? step.exact(t, h) : TensorView{};
  const TensorView shared_gate = gated ? step.arena.tensor(DType::kF32, t, 1) : TensorView{};
  if (shared) TERN_RETURN_IF_ERROR(dense_mlp(step, w.shared, x, shared_out));
  if (step.measuring()) return {};

  TERN_RETURN_IF_ERROR(route(step, spec, layer, w, x, logits, ids, weights));
  TERN_RETURN_IF_ERROR(ops::moe_permute({x, ids, spec.experts, offsets, row_of, sorted}, step.stream));
  TERN_RETURN_IF_ERROR(ops::grouped_linear({sorted, offsets, w.gate_up, gate_up}, step.stream));
  TERN_RETURN_IF_ERROR(ops::silu_mul({gate_up, hidden}, step.stream));
  TERN_RETURN_IF_ERROR(ops::grouped_linear({hidden, offsets, w.down, results}, step.stream));
  if (gated) TERN_RETURN_IF_ERROR(ops::linear({x, &w.shared_gate, {}, shared_gate}, step.stream));
  return ops::moe_combine({.y = results,
                           .row_of = row_of,
                           .weights = weights,
                           .shared = shared_out,
                           .shared_gate = gated ? tensor1(shared_gate.data, DType::kF32, t) : TensorView{},
                           .out = out},
                          step.stream);
}

}  // namespace tern::model
