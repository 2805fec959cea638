// `tern bench latency`: how long a batch takes from its prompts to its last token.
#include <fmt/format.h>

#include <cstdio>
#include <numeric>

#include "app/options.h"
#include "app/report.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "bench/engine/engine_bench.h"
#include "bench/requests/dataset.h"
#include "client/load_client.h"

namespace tern::bench {
namespace {

struct LatencyOptions {
  int input_len = 32, output_len = 128, batch_size = 8, n = 1, warmup = 10, iterations = 30;
  bool beam = false, profile = false, disable_detokenize = false;
  std::string output_json;
  std::vector<std::string> flags;
};

class LatencyBench {
 public:
  LatencyBench(const LatencyOptions& options, EngineBench& bench) : o_(options), bench_(bench) {
    for (int i = 0; i < o_.batch_size; ++i) {
      const Sample sample = random_sample(
          {.input_len = o_.input_len, .output_len = o_.output_len, .vocab = bench.offline->model().info().vocab_size},
          i);
      for (int k = 0; k < o_.n; ++k) prompts_.push_back({sample.ids, o_.output_len});
    }
  }

  Status run() {
    std::fputs("Warming up...\n", stderr);
    for (int i = 0; i < o_.warmup; ++i) {
      if (const auto seconds = batch(); !seconds.ok()) return seconds.error();
    }
    if (o_.profile) return profile();
    std::vector<double> latencies;
    for (int i = 0; i < o_.iterations; ++i) {
      TERN_ASSIGN_OR_RETURN(const double seconds, batch());
      latencies.push_back(seconds);
    }
    return print(latencies);
  }

 private:
  // Seconds.
  Expected<double> batch() {
    const int64_t start = monotonic_ns();
    const auto runs = bench_.offline->run(prompts_, plain_sampling(), [&](const app::OfflineRun& run) {
      if (!o_.disable_detokenize) detokenize(bench_, run);
    });
    if (!runs.ok()) return runs.error();
    return static_cast<double>(monotonic_ns() - start) * 1e-9;
  }

  Status profile() {
    bench_.gate->open();
    TERN_ASSIGN_OR_RETURN(const double seconds, batch());
    fmt::print("one batch in {} seconds; its steps are in {}\n", seconds, bench_.settings.trace);
    return {};
  }

  Status print(const std::vector<double>& latencies) const {
    const double mean =
        std::accumulate(latencies.begin(), latencies.end(), 0.0) / static_cast<double>(latencies.size());
    fmt::print("Avg latency: {} seconds\n", mean);
    json::Object percentiles;
    std::vector<double> sorted = latencies;
    for (const int percent : {10, 25, 50, 75, 90, 99}) {
      const double value = client::quantile(sorted, percent / 100.0);
      fmt::print("{}% percentile latency: {} seconds\n", percent, value);
      percentiles[std::to_string(percent)] = value;
    }
    if (o_.output_json.empty()) return {};
    return write_result(o_.output_json, "output-json",
                        {{"avg_latency", mean},
                         {"latencies", json::Array(latencies.begin(), latencies.end())},
                         {"percentiles", percentiles}});
  }

  const LatencyOptions& o_;
  EngineBench& bench_;
  std::vector<app::OfflinePrompt> prompts_;
};

Status run(const LatencyOptions& o) {
  if (o.beam)
    return make_error(ErrorCode::kUnsupported, "--use-beam-search: there is no beam search", "use-beam-search");
  TERN_ASSIGN_OR_RETURN(const auto bench, load_engine_bench(o.flags, !o.profile));
  if (o.profile && bench->gate == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "--profile needs --trace FILE for the steps of the batch",
                      "profile");
  }
  if (o.input_len + o.output_len > bench->max_model_len()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--input-len and --output-len are {} tokens, --max-model-len is {}",
                                  o.input_len + o.output_len, bench->max_model_len()),
                      "max-model-len");
  }
  return LatencyBench(o, *bench).run();
}

}  // namespace

int run_bench_latency(const std::vector<std::string>& args) {
  app::Options parser(
      "Seconds that a batch of random prompts takes in the engine, without a server. Further flags are those of tern "
      "serve (--model and on)",
      "tern bench latency");
  LatencyOptions o;
  parser.add_option("--input-len", o.input_len, "Tokens of a prompt").capture_default_str().range(1, 1 << 22);
  parser.add_option("--output-len", o.output_len, "Tokens of an answer").capture_default_str().range(1, 1 << 22);
  parser.add_option("--batch-size", o.batch_size, "Prompts of a batch").capture_default_str().range(1, 65536);
  parser.add_option("--n", o.n, "Answers to each prompt").capture_default_str().range(1, 1024);
  parser.add_flag("--use-beam-search", o.beam, "Refused: there is no beam search");
  parser.add_option("--num-iters-warmup", o.warmup, "Batches before those that count")
      .capture_default_str()
      .range(0, 1'000'000);
  parser.add_option("--num-iters", o.iterations, "Batches that count").capture_default_str().range(1, 1'000'000);
  parser.add_flag("--profile", o.profile, "Traces one batch behind the warm-up to the file of --trace and ends");
  parser.add_option("--output-json", o.output_json, "File for avg_latency, latencies and percentiles, in seconds");
  parser.add_flag("--disable-detokenize", o.disable_detokenize, "Makes no text of the answers");
  parser.pass_on(o.flags);
  if (const auto status = app::parse_options(parser, args)) return *status;
  const Status status = run(o);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::bench
