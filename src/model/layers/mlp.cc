#include <algorithm>

#include "model/layers/layers.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace tern::model {

Status dense_mlp(Step& step, const DenseWeights& w, TensorView x, TensorView out) {
  const Scratch scratch(step.arena);
  const TensorView gate_up = step.between(step.tokens, w.gate_up);
  const TensorView gated = step.act(step.tokens, w.down.weight.k);
  if (step.measuring()) return {};
  TERN_RETURN_IF_ERROR(ops::gated_linear({x, &w.gate_up.weight, w.gate_up.bias, gate_up}, gated, step.stream));
  return ops::linear({gated, &w.down.weight, w.down.bias, out}, step.stream);
}

namespace {

// Chooses experts for every token and sorts the tokens by them; a probe may replace the choice. `norm`: to be done
// before, unless it has no x.
Status dispatch(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, const ops::RmsNormParams& norm,
                TensorView logits, TensorView weights, const ops::MoePermuteParams& permute) {
  const ops::LinearParams router{permute.x, &w.router, {}, logits};
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
                        .split = w.split,
                        .token_ids = step.batch->token_ids.first(step.tokens),
                        .second = spec.second_tokens,
                        .ids = permute.ids,
                        .weights = weights};
  if (step.probe == nullptr) return ops::moe_dispatch({p, permute, router, norm}, step.stream);
  if (norm.x.data != nullptr) TERN_RETURN_IF_ERROR(ops::rms_norm(norm, step.stream));
  TERN_RETURN_IF_ERROR(ops::linear(router, step.stream));
  step.probe->router(layer, logits);
  TERN_RETURN_IF_ERROR(ops::moe_route(p, step.stream));
  if (step.probe->routing(layer, permute.ids)) {
    p.forced = true;
    TERN_RETURN_IF_ERROR(ops::moe_route(p, step.stream));
  }
  return ops::moe_permute(permute, step.stream);
}

// Entries [begin, begin + n) of a vector.
TensorView part(TensorView v, int64_t begin, int64_t n) {
  v.data = v.as<int32_t>() + begin;
  v.dim[0] = n;
  return v;
}

// Whether two experts share a grouped product.
bool alike(const MoeWeights& w, size_t a, size_t b) {
  return w.gate_up[a].n == w.gate_up[b].n && w.gate_up[a].format == w.gate_up[b].format &&
         w.down[a].format == w.down[b].format;
}

// Rows sorted by expert, of the tokens `token_of` in x, through the experts: neighbours of one width and one format in
// one product.
// Which rows are a width's is known on the device only, so each width has the whole height of the buffers.
Status experts(Step& step, const MoeWeights& w, TensorView sorted, TensorView offsets, TensorView gate_up,
               TensorView hidden, TensorView results, TensorView x, TensorView token_of) {
  for (size_t begin = 0, end = 0; begin < w.gate_up.size(); begin = end) {
    const int64_t n = w.gate_up[begin].n, k = w.down[begin].k;
    for (end = begin + 1; end < w.gate_up.size() && alike(w, begin, end);) ++end;
    const size_t count = end - begin;
    const TensorView rows = part(offsets, static_cast<int64_t>(begin), static_cast<int64_t>(count) + 1);
    if (!w.gate_up[begin].valid()) {  // another rank has them
      TERN_RETURN_IF_ERROR(ops::clear_experts({results, rows}, step.stream));
      continue;
    }
    const TensorView wide = gate_up.columns(0, n), narrow = hidden.columns(0, k);
    TERN_RETURN_IF_ERROR(
        ops::grouped_gated_linear({sorted, rows, {&w.gate_up[begin], count}, wide, x, token_of}, narrow, step.stream));
    ops::GroupedLinearParams down{narrow, rows, {&w.down[begin], count}, results};
    // Else more comes before the sum, or a sum over ranks after it.
    down.once = count == w.down.size() && !w.shared.down.weight.valid() && step.communicator.alone();
    TERN_RETURN_IF_ERROR(ops::grouped_linear(down, step.stream));
  }
  return {};
}

}  // namespace

Status moe_mlp(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, const ops::RmsNormParams& before,
               const ops::RmsNormParams& next) {
  const Scratch scratch(step.arena);
  const TensorView x = before.out;
  const int64_t t = step.tokens, k = spec.top_k, h = x.dim[1];
  const bool shared = w.shared.down.weight.valid(), gated = w.shared_gate.valid();
  const auto places = static_cast<int64_t>(w.gate_up.size());
  int64_t widest = 0;
  for (const ops::PackedWeight& down : w.down) widest = std::max(widest, down.k);
  const TensorView logits = step.arena.tensor(DType::kF32, t, w.router.n);
  const TensorView ids = step.arena.tensor(DType::kI32, t, k);
  const TensorView weights = step.arena.tensor(DType::kF32, t, k);
  const TensorView offsets = step.arena.tensor(DType::kI32, places + 1);
  const TensorView row_of = step.arena.tensor(DType::kI32, t, k);
  const TensorView token_of = step.arena.tensor(DType::kI32, t * k);
  const TensorView sorted = step.act(t * k, h);
  const TensorView gate_up = step.exact(t * k, 2 * widest);
  const TensorView hidden = step.act(t * k, widest);
  const TensorView results = step.between(t * k, h);
  const TensorView shared_out = shared ? step.exact(t, h) : TensorView{};
  const TensorView shared_gate = gated ? step.arena.tensor(DType::kF32, t, 1) : TensorView{};
  if (shared && before.x.data != nullptr) TERN_RETURN_IF_ERROR(ops::rms_norm(before, step.stream));
  if (shared) TERN_RETURN_IF_ERROR(dense_mlp(step, w.shared, x, shared_out));
  if (step.measuring()) return {};

  TERN_RETURN_IF_ERROR(dispatch(step, spec, layer, w, shared ? ops::RmsNormParams{} : before, logits, weights,
                                {x, ids, static_cast<int>(places), offsets, row_of, sorted, token_of}));
  TERN_RETURN_IF_ERROR(experts(step, w, sorted, offsets, gate_up, hidden, results, x, token_of));
  if (gated) TERN_RETURN_IF_ERROR(ops::linear({x, &w.shared_gate, {}, shared_gate}, step.stream));
  const ops::MoeCombineParams combine{.y = results,
                                      .row_of = row_of,
                                      .weights = weights,
                                      .shared = shared_out,
                                      .shared_gate = gated ? tensor1(shared_gate.data, DType::kF32, t) : TensorView{},
                                      .out = next.x};
  if (step.communicator.alone()) return ops::moe_combine_norm({combine, next}, step.stream);
  TERN_RETURN_IF_ERROR(ops::moe_combine(combine, step.stream));
  return step.reduce_norm(next);
}

}  // namespace tern::model
