#include <algorithm>

#include "app/report.h"
#include "bench/bench_offline.h"

namespace tern::bench {
namespace {

Status bench_prefill(const BenchOptions& o) {
  const int budget = o.chunk > 0 ? std::min(o.chunk, o.tokens) : o.tokens;
  TERN_ASSIGN_OR_RETURN(Bench bench, prepare_bench(o, 1, std::max(o.tokens + 2, 64), std::max(budget, 64)));
  TERN_ASSIGN_OR_RETURN(const KernelCeilings ceilings, bench_ceilings(bench, o));
  TERN_RETURN_IF_ERROR(bench.offline->start_engine());
  std::mt19937_64 random(1);
  std::vector<double> times;
  SamplingParams greedy;
  greedy.temperature = 0;
  for (int i = 0; i < o.repeats + 1; ++i) {
    TERN_ASSIGN_OR_RETURN(const auto runs,
                          bench.offline->run(random_prompts(1, o.tokens, bench.summary.vocab_size, random), 1, greedy));
    if (i > 0) times.push_back(static_cast<double>(runs[0].token_ns[0] - runs[0].submitted_ns) / 1e9);
  }
  bench.offline->stop_engine();
  std::sort(times.begin(), times.end());
  const double best = times.front(), t = o.tokens;
  const double linear = bench.cost.linear_flops_per_token * t + bench.cost.output_flops;
  const double attention = bench.cost.attention_flops_per_pair * t * (t + 1) / 2;
  json::Object figures = bench_head(bench, o);
  figures["tokens"] = o.tokens, figures["tokens_per_step"] = budget;
  figures["tokens_per_second"] = t / best;
  figures["tokens_per_second_median"] = t / times[times.size() / 2];
  figures["milliseconds"] = best * 1e3;
  figures["linear_gflop"] = linear / 1e9;
  figures["attention_gflop"] = attention / 1e9;
  figures["gflops"] = linear / best / 1e9;
  figures["dot_ceiling_gflops"] = ceilings.product / 1e9;
  figures["dot_ceiling_variant"] = ceilings.product_variant;
  if (ceilings.product > 0) {
    figures["ratio"] = linear / best / ceilings.product;
    figures["ratio_with_attention"] = (linear + attention) / best / ceilings.product;
  }
  print_bench(o, figures);
  return {};
}

}  // namespace

int run_bench_prefill(const std::vector<std::string>& args) {
  app::Options parser("Prompt speed of the engine without a server", "tern bench prefill");
  BenchOptions options;
  options.tokens = 1024;
  add_bench_options(parser, options);
  parser.add_option("--tokens", options.tokens, "Tokens of the prompt").capture_default_str().range(1, 1 << 20);
  parser.add_option("--chunk", options.chunk, "Tokens of one step; 0: the whole prompt").capture_default_str();
  if (const auto status = app::parse_options(parser, args)) return *status;
  const Status status = bench_prefill(options);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::bench
