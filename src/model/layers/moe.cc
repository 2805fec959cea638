// A layer of experts: on one rank, on the ranks of an engine, or on those of several engines.
#include <algorithm>

#include "model/layers/layers.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace tern::model {
namespace {

ops::MoeRouteParams route_of(const Step& step, const MoeSpec& spec, const MoeWeights& w, TensorView logits,
                             TensorView ids, TensorView weights) {
  return {.logits = logits,
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
          .ids = ids,
          .weights = weights};
}

// Chooses experts for every token; a probe may replace the choice.
Status choose(Step& step, int layer, const ops::LinearParams& router, ops::MoeRouteParams p) {
  TERN_RETURN_IF_ERROR(ops::linear(router, step.stream));
  if (step.probe != nullptr) step.probe->router(layer, p.logits);
  TERN_RETURN_IF_ERROR(ops::moe_route(p, step.stream));
  if (step.probe == nullptr || !step.probe->routing(layer, p.ids)) return {};
  p.forced = true;
  return ops::moe_route(p, step.stream);
}

// The same, and sorts the tokens by experts. `norm`: to be done before, unless it has no x.
Status dispatch(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, const ops::RmsNormParams& norm,
                TensorView logits, TensorView weights, const ops::MoePermuteParams& permute) {
  const ops::LinearParams router{permute.x, &w.router, {}, logits};
  const ops::MoeRouteParams p = route_of(step, spec, w, logits, permute.ids, weights);
  if (step.probe == nullptr) return ops::moe_dispatch({p, permute, router, norm}, step.stream);
  if (norm.x.data != nullptr) TERN_RETURN_IF_ERROR(ops::rms_norm(norm, step.stream));
  TERN_RETURN_IF_ERROR(choose(step, layer, router, p));
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
    down.once = count == w.down.size() && !w.shared.down.weight.valid() && step.communicator.alone() &&
                step.gathered == nullptr;
    TERN_RETURN_IF_ERROR(ops::grouped_linear(down, step.stream));
  }
  return {};
}

// What a layer of experts needs between the router and the sum: for `n` tokens, those of other engines among them.
struct ExpertTensors {
  ExpertTensors(Step& step, const MoeSpec& spec, const MoeWeights& w, int64_t n, int64_t h) {
    const int64_t k = spec.top_k;
    places = static_cast<int64_t>(w.gate_up.size());
    int64_t widest = 0;
    for (const ops::PackedWeight& down : w.down) widest = std::max(widest, down.k);
    logits = step.arena.tensor(DType::kF32, step.tokens, w.router.n);
    ids = step.arena.tensor(DType::kI32, n, k);
    weights = step.arena.tensor(DType::kF32, n, k);
    offsets = step.arena.tensor(DType::kI32, places + 1);
    row_of = step.arena.tensor(DType::kI32, n, k);
    token_of = step.arena.tensor(DType::kI32, n * k);
    sorted = step.act(n * k, h);
    gate_up = step.exact(n * k, 2 * widest);
    hidden = step.act(n * k, widest);
    results = step.between(n * k, h);
    if (w.shared.down.weight.valid()) shared = step.exact(step.tokens, h);
    if (w.shared_gate.valid()) shared_gate = step.arena.tensor(DType::kF32, step.tokens, 1);
  }
  ops::MoePermuteParams permute(TensorView x) const {
    return {x, ids, static_cast<int>(places), offsets, row_of, sorted, token_of};
  }
  TensorView gate() const {
    return shared_gate.rank > 0 ? tensor1(shared_gate.data, DType::kF32, shared_gate.dim[0]) : TensorView{};
  }
  static TensorView rows(TensorView v, int64_t begin, int64_t n) {
    v.data = v.row_bytes(begin);
    v.dim[0] = n;
    return v;
  }

  int64_t places = 0;
  TensorView logits, ids, weights, offsets, row_of, token_of, sorted, gate_up, hidden, results, shared, shared_gate;
};

// Experts dealt to the ranks of several engines: every rank sees the tokens of all, and gives all of them what its
// experts make of them; an engine's tokens get the sum over all ranks. Its shared experts are its own.
Status moe_of_engines(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, ops::RmsNormParams before,
                      const ops::RmsNormParams& next) {
  const Scratch scratch(step.arena);
  const Gathered& all = *step.gathered;
  const int64_t n = all.tokens, t = step.tokens, own = all.own, h = next.x.dim[1];
  const TensorView x = step.act(n, h), sums = step.exact(n, h);
  const ExpertTensors r(step, spec, w, n, h);
  const bool shared = r.shared.rank > 0;
  if (step.measuring()) return shared ? dense_mlp(step, w.shared, x.first(t), r.shared) : Status();
  const TensorView mine = ExpertTensors::rows(x, own, t);
  before.out = mine;
  if (t > 0) {
    TERN_RETURN_IF_ERROR(step.reduce_norm(before));
    TERN_RETURN_IF_ERROR(choose(
        step, layer, {mine, &w.router, {}, r.logits},
        route_of(step, spec, w, r.logits, ExpertTensors::rows(r.ids, own, t), ExpertTensors::rows(r.weights, own, t))));
  }
  const std::span<const int64_t> first{all.first.data(), static_cast<size_t>(all.communicator.ranks) + 1};
  for (const TensorView& what : {x, r.ids, r.weights}) {
    TERN_RETURN_IF_ERROR(ops::all_gather_rows({all.communicator, first, what}, step.stream));
  }
  TERN_RETURN_IF_ERROR(ops::moe_permute(r.permute(x), step.stream));
  TERN_RETURN_IF_ERROR(experts(step, w, r.sorted, r.offsets, r.gate_up, r.hidden, r.results, x, r.token_of));
  TERN_RETURN_IF_ERROR(
      ops::moe_combine({.y = r.results, .row_of = r.row_of, .weights = r.weights, .out = sums}, step.stream));
  if (t > 0 && shared) {
    TERN_RETURN_IF_ERROR(dense_mlp(step, w.shared, mine, r.shared));
    TERN_RETURN_IF_ERROR(step.reduce(r.shared));
  }
  if (t > 0 && r.shared_gate.rank > 0) {
    TERN_RETURN_IF_ERROR(ops::linear({mine, &w.shared_gate, {}, r.shared_gate}, step.stream));
  }
  // Shared experts come last, so that it does not matter which engine has the token.
  TERN_RETURN_IF_ERROR(ops::reduce_scatter({all.communicator, sums, own, next.x, r.shared, r.gate()}, step.stream));
  return t > 0 ? ops::rms_norm(next, step.stream) : Status();
}

}  // namespace

Status moe_mlp(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, const ops::RmsNormParams& before,
               const ops::RmsNormParams& next) {
  if (step.gathered != nullptr) return moe_of_engines(step, spec, layer, w, before, next);
  const Scratch scratch(step.arena);
  const TensorView x = before.out;
  const ExpertTensors r(step, spec, w, step.tokens, x.dim[1]);
  const bool shared = r.shared.rank > 0;
  if (shared && before.x.data != nullptr) TERN_RETURN_IF_ERROR(ops::rms_norm(before, step.stream));
  if (shared) TERN_RETURN_IF_ERROR(dense_mlp(step, w.shared, x, r.shared));
  if (step.measuring()) return {};

  TERN_RETURN_IF_ERROR(
      dispatch(step, spec, layer, w, shared ? ops::RmsNormParams{} : before, r.logits, r.weights, r.permute(x)));
  TERN_RETURN_IF_ERROR(experts(step, w, r.sorted, r.offsets, r.gate_up, r.hidden, r.results, x, r.token_of));
  if (r.shared_gate.rank > 0) {
    TERN_RETURN_IF_ERROR(ops::linear({x, &w.shared_gate, {}, r.shared_gate}, step.stream));
  }
  const ops::MoeCombineParams combine{.y = r.results,
                                      .row_of = r.row_of,
                                      .weights = r.weights,
                                      .shared = r.shared,
                                      .shared_gate = r.gate(),
                                      .out = next.x};
  if (step.communicator.alone()) return ops::moe_combine_norm({combine, next}, step.stream);
  TERN_RETURN_IF_ERROR(ops::moe_combine(combine, step.stream));
  return step.reduce_norm(next);
}

}  // namespace tern::model
