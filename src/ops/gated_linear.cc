// A product and its gate or activation: in one where the weight's format can, else one after the other.
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/vision.h"

namespace tern::ops {

Status gated_linear(const LinearParams& p, TensorView gated, device::Stream stream) {
  if (p.weight != nullptr && p.weight->valid()) {
    TERN_ASSIGN_OR_RETURN(const bool done, p.weight->format->run_gated(p, gated, stream));
    if (done) return {};
  }
  TERN_RETURN_IF_ERROR(linear(p, stream));
  return silu_mul({p.out, gated, {}}, stream);
}

Status grouped_gated_linear(const GroupedLinearParams& p, TensorView gated, device::Stream stream) {
  if (!p.weights.empty() && p.weights[0].valid()) {
    TERN_ASSIGN_OR_RETURN(const bool done, p.weights[0].format->run_grouped_gated(p, gated, stream));
    if (done) return {};
  }
  TERN_RETURN_IF_ERROR(grouped_linear(p, stream));
  return silu_mul({p.out, gated, p.offsets}, stream);
}

Status active_linear(const LinearParams& p, Activation kind, TensorView active, device::Stream stream) {
  if (p.weight != nullptr && p.weight->valid()) {
    TERN_ASSIGN_OR_RETURN(const bool done, p.weight->format->run_active(p, kind, active, stream));
    if (done) return {};
  }
  TERN_RETURN_IF_ERROR(linear(p, stream));
  return activate({p.out, active, kind}, stream);
}

}  // namespace tern::ops
