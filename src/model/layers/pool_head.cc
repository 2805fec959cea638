#include "model/layers/layers.h"
#include "ops/linear.h"
#include "ops/vision.h"

namespace tern::model {

Status pool_head(Step& step, HeadKind kind, const DenseWeights& w, TensorView rows, TensorView out) {
  if (kind == HeadKind::kHidden) {
    return step.measuring() ? Status() : ops::activate({rows, out, ops::Activation::kNone}, step.stream);
  }
  const Scratch scratch(step.arena);
  const int64_t n = rows.dim[0];
  const TensorView wide = step.exact(n, w.gate_up.weight.n), active = step.act(n, w.down.weight.k);
  if (step.measuring()) return {};
  const ops::LinearParams up{rows, &w.gate_up.weight, w.gate_up.bias, wide};
  TERN_RETURN_IF_ERROR(kind == HeadKind::kReluMlp ? ops::active_linear(up, ops::Activation::kRelu, active, step.stream)
                                                  : ops::gated_linear(up, active, step.stream));
  return ops::linear({active, &w.down.weight, w.down.bias, out}, step.stream);
}

}  // namespace tern::model
