// The parts of `tern bench`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/config/model_facts.h"
#include "base/error.h"
#include "json/json.h"
#include "model/loader.h"

namespace tern::bench {

// What one step reads and computes, from the configuration alone.
struct StepCost {
  double decode_weight_bytes = 0;     // weights that one decode step of one token reads: all but rows of the embedding
  double linear_flops_per_token = 0;  // of the layers: 2 per weight; without the output layer
  double output_flops = 0;            // of the output layer, per logit row
  double attention_flops_per_pair = 0;     // of all layers, per pair of a token and one that it sees; 0: unknown
  double experts = 0, chosen_experts = 0;  // of a layer; 0: none
  double expert_bytes = 0;                 // of all experts of all layers
  // What a step of `tokens` tokens reads when they choose their experts independently.
  double step_weight_bytes(double tokens) const;
};
// `tied`: the output layer is the embedding. `bytes` per weight.
StepCost step_cost(const model::ModelSummary& summary, int64_t hidden, bool tied, int bytes);

// A result as a JSON file, whose name `flag` gave. Errors: kIo.
Status write_result(const std::string& path, const char* flag, const json::Object& result);

// `tern bench NAME`.
struct Benchmark {
  std::string_view name, summary;
  int (*run)(const std::vector<std::string>& args);
};
std::span<const Benchmark> benchmarks();

// `tern bench ...`: args follow its name; gives the exit status, as each of them.
int run_bench(const std::vector<std::string>& args);
int run_bench_latency(const std::vector<std::string>& args);
int run_bench_eval(const std::vector<std::string>& args);
int run_bench_throughput(const std::vector<std::string>& args);
int run_bench_decode(const std::vector<std::string>& args);
int run_bench_prefill(const std::vector<std::string>& args);
int run_bench_load(const std::vector<std::string>& args);
int run_bench_kernels(const std::vector<std::string>& args);
int run_bench_ranks(const std::vector<std::string>& args);
int run_bench_serve(const std::vector<std::string>& args);

}  // namespace tern::bench
