// What the benchmarks of the engine without a server share.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "app/options.h"
#include "app/start/offline.h"
#include "app/start/trace_file.h"
#include "bench/bench.h"
#include "bench/kernels.h"
#include "bench/step_log.h"

namespace tern::bench {

struct BenchOptions {
  std::string model, load_choices = "default_v1", dtype = "bfloat16", model_override, device = "auto", trace, also;
  int cpu_threads = 0, batch = 1, context = 128, tokens = 64, chunk = 0, repeats = 3;
  double ceiling_gib = 0;  // 0: as the device needs
  double temperature = 0, top_p = 1, repetition_penalty = 1;
  bool json = false;
};

void add_bench_options(app::Options& parser, BenchOptions& options);

struct Bench {
  app::Settings settings;
  std::unique_ptr<app::TraceFile> trace;
  std::unique_ptr<StepLog> log;
  std::unique_ptr<app::Offline> offline;  // uses the two above
  StepCost cost;
  model::ModelSummary summary;
};

// The same road as serve takes: flags, defaults, checks. The engine is not started yet.
Expected<Bench> prepare_bench(const BenchOptions& options, int sequences, int length, int budget);
Expected<KernelCeilings> bench_ceilings(Bench& bench, const BenchOptions& options);
std::vector<std::vector<int32_t>> random_prompts(int count, int length, int vocab, std::mt19937_64& random);
json::Object bench_head(const Bench& bench, const BenchOptions& options);
void print_bench(const BenchOptions& options, const json::Object& figures);

}  // namespace tern::bench
