#include "base/checked.h"
#include "model/weights/weight_plan.h"

namespace tern::model {

// A token uses top_k experts of one bank; the first one is counted.
Expected<ParameterCount> count_parameters(const DecoderSpec& spec, const WeightPlan& plan) {
  ParameterCount count;
  int64_t experts = 0;
  for (const Parameter& p : plan.parameters) {
    const auto elements = checked_mul(p.rows, p.cols);
    const auto all = elements ? checked_add(count.all, *elements) : std::nullopt;
    if (!all || *all > (int64_t{1} << 50))
      return make_error(ErrorCode::kTooLarge, "config.json describes more weights than any machine holds");
    count.all = *all;
    if (p.expert < 0) count.active += *elements;
    if (p.expert >= 0 && p.expert < spec.moe.experts) experts += *elements;
  }
  if (spec.moe.experts > 0) count.active += experts / spec.moe.experts * spec.moe.top_k;
  return count;
}

}  // namespace tern::model
