// The parts of `tern bench`.
#pragma once

#include <string>
#include <vector>

#include "app/model_facts.h"
#include "base/error.h"
#include "json/json.h"
#include "model/loader.h"

namespace tern::app {

// What one step reads and computes, from the configuration alone.
struct StepCost {
  double decode_weight_bytes = 0;     // weights that one decode step of one token reads: all but rows of the embedding
  double linear_flops_per_token = 0;  // of the layers: 2 per weight; without the output layer
  double output_flops = 0;            // of the output layer, per logit row
};
// `tied`: the output layer is the embedding. `bytes` per weight.
StepCost step_cost(const model::ModelSummary& summary, int64_t hidden, bool tied, int bytes);

int run_bench_decode(const std::vector<std::string>& args);
int run_bench_prefill(const std::vector<std::string>& args);
int run_bench_load(const std::vector<std::string>& args);
int run_bench_serve(const std::vector<std::string>& args);

}  // namespace tern::app
