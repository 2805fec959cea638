// A config.json: it is refused, or its plan of weights can be made for one rank and for two.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "json/json.h"
#include "model/arch/registry.h"
#include "model/rope/rope_frequencies.h"
#include "model/weights/weight_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::model;
  const auto config =
      tern::json::parse({reinterpret_cast<const char*>(data), size}, {.max_bytes = 1 << 16, .max_depth = 16});
  if (!config.ok() || !config->is_object()) return 0;
  const auto spec = read_spec(config->get_object());
  if (!spec.ok()) return 0;
  if (make_rope_table(spec->rope, 1 << 20).inv_freq.size() != static_cast<size_t>(spec->rope.dim) / 2) std::abort();
  // A plan lists every tensor; large ones take seconds and show nothing more.
  if (static_cast<int64_t>(spec->layers) * (16 + 3 * (int64_t{spec->moe.experts} + spec->moe.second_experts)) > 20000)
    return 0;
  if (spec->attention.heads > 64) return 0;
  for (int ranks : {1, 2}) {
    DecoderWeights places;
    const auto plan = plan_weights(*spec, {}, {0, ranks, false}, places);
    if (!plan.ok()) continue;
    for (const MatrixPlan& m : plan->matrices)
      if (m.n < 0 || m.k < 1) std::abort();
    (void)count_parameters(*spec, *plan).ok();
  }
  return 0;
}
