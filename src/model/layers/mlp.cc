#include "model/layers/layers.h"
#include "ops/linear.h"

namespace tern::model {

Status dense_mlp(Step& step, const DenseWeights& w, TensorView x, TensorView out) {
  const Scratch scratch(step.arena);
  const TensorView gate_up = step.between(step.tokens, w.gate_up);
  const TensorView gated = step.act(step.tokens, w.down.weight.k);
  if (step.measuring()) return {};
  TERN_RETURN_IF_ERROR(ops::gated_linear({x, &w.gate_up.weight, w.gate_up.bias, gate_up}, gated, step.stream));
  return ops::linear({gated, &w.down.weight, w.down.bias, out}, step.stream);
}

}  // namespace tern::model
