#include <fmt/format.h>

#include "app/report.h"
#include "base/nearest_name.h"
#include "bench/bench.h"

namespace tern::bench {
namespace {

constexpr Benchmark kBenchmarks[] = {
    {"latency", "seconds that a batch takes in the engine, without a server", run_bench_latency},
    {"serve", "streamed requests to a server, with the times a client sees", run_bench_serve},
    {"throughput", "requests and tokens per second of the engine, without a server", run_bench_throughput},
    {"eval", "accuracy: lm-eval's tasks against a server, or files of questions and answers", run_bench_eval},
    {"decode", "decoding steps of the engine beside what this machine's memory can do", run_bench_decode},
    {"prefill", "prompts through the engine beside what this machine's products can do", run_bench_prefill},
    {"load", "loading of a model's weights", run_bench_load},
    {"kernels", "single operations by shape", run_bench_kernels},
    {"ranks", "what several GPUs exchange", run_bench_ranks},
};

std::string usage() {
  std::string out = "Usage: tern bench NAME [options]\n\n";
  for (const Benchmark& benchmark : kBenchmarks) out += fmt::format("  {:<11}{}\n", benchmark.name, benchmark.summary);
  return out + "\ntern bench NAME --help says more.\n";
}

int unknown(const std::string& name) {
  std::vector<std::string_view> names;
  std::string all;
  for (const Benchmark& benchmark : kBenchmarks) {
    names.push_back(benchmark.name);
    all += fmt::format("{}{}", all.empty() ? "" : ", ", benchmark.name);
  }
  const std::string_view near = nearest_name(name, names, name.size() / 2);
  fmt::print(stderr, "tern: unknown benchmark \"{}\"{}; there are {}\n", name,
             near.empty() ? "" : fmt::format("; the nearest is {}", near), all);
  return app::kUsageExit;
}

}  // namespace

std::span<const Benchmark> benchmarks() { return kBenchmarks; }

int run_bench(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    fmt::print("{}", usage());
    return args.empty() ? app::kUsageExit : 0;
  }
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  for (const Benchmark& benchmark : kBenchmarks) {
    if (benchmark.name == args[0]) return benchmark.run(rest);
  }
  return unknown(args[0]);
}

}  // namespace tern::bench
