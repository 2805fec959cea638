#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "app/bench.h"
#include "app/commands.h"
#include "app/flag_set.h"
#include "app/json_text.h"
#include "app/offline.h"
#include "app/options.h"
#include "kernels/cpu/ceilings.h"

namespace tern::app {
namespace {

struct BenchOptions {
  std::string model, load_choices = "default_v1", dtype = "bfloat16", model_override;
  int cpu_threads = 0, batch = 1, context = 128, tokens = 64, repeats = 3;
  double ceiling_gib = 1;
  bool json = false;
};

void add_common(CLI::App& parser, BenchOptions& options) {
  parser
      .add_option("--model,-m", options.model, "Folder of the model; with --load-choices dummy config.json is enough")
      ->required();
  parser.add_option("--load-choices", options.load_choices, "default_v1: from files, dummy: random weights")
      ->capture_default_str();
  parser.add_option("--dtype", options.dtype, "bfloat16 or float32")->capture_default_str();
  parser.add_option("--model-override", options.model_override, "JSON that replaces values of config.json");
  parser.add_option("--cpu-threads", options.cpu_threads, "Threads that compute; 0: physical cores")
      ->capture_default_str();
  parser.add_option("--ceiling-gib", options.ceiling_gib, "GiB read to find the memory's bandwidth")
      ->capture_default_str();
  parser.add_option("--repeats", options.repeats, "Runs; the best and the median are printed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  parser.add_flag("--json", options.json, "Prints one JSON object");
}

struct Bench {
  Settings settings;
  std::unique_ptr<Offline> offline;
  StepCost cost;
  model::ModelSummary summary;
};

// The same road as serve takes: flags, defaults, checks.
Expected<Bench> prepare(const BenchOptions& o, int sequences, int length, int budget) {
  std::vector<std::string> args = {"--model",
                                   o.model,
                                   "--load-choices",
                                   o.load_choices,
                                   "--dtype",
                                   o.dtype,
                                   "--no-enable-prefix-caching",
                                   "--prefix-cache-allowance",
                                   "0",
                                   "--max-num-seqs",
                                   std::to_string(sequences),
                                   "--max-model-len",
                                   std::to_string(length),
                                   "--max-num-batched-tokens",
                                   std::to_string(budget)};
  if (!o.model_override.empty()) args.insert(args.end(), {"--model-override", o.model_override});
  if (o.cpu_threads > 0) args.insert(args.end(), {"--cpu-threads", std::to_string(o.cpu_threads)});
  TERN_ASSIGN_OR_RETURN(Arguments arguments, parse_arguments(args));
  TERN_ASSIGN_OR_RETURN(Environment environment, Environment::from(Environment::of_process()));
  const std::string folder = find_folder(o.model, environment);
  if (folder.empty()) return make_error(ErrorCode::kNotFound, fmt::format("there is no model folder {}", o.model));
  const json::Object* overrides = arguments.flags.get("model-override").if_object();
  TERN_ASSIGN_OR_RETURN(const ModelFacts facts,
                        read_model_facts(folder, "config.json", overrides ? *overrides : json::Object()));
  Bench bench;
  TERN_ASSIGN_OR_RETURN(bench.settings, resolve(std::move(arguments.flags), std::move(environment), facts));
  TERN_ASSIGN_OR_RETURN(bench.summary, model::summarize_model(bench.settings.load));
  TERN_ASSIGN_OR_RETURN(bench.offline, Offline::load(bench.settings));
  TERN_ASSIGN_OR_RETURN(const json::Value config, json::parse_file(folder + "/config.json"));
  const auto tied = json::get_bool(config.as_object(), "tie_word_embeddings");
  const int bytes = o.dtype == "float32" ? 4 : 2;
  bench.cost =
      step_cost(bench.summary, bench.offline->model().info().hidden_size, tied.ok() && tied->value_or(false), bytes);
  return bench;
}

std::vector<std::vector<int32_t>> random_prompts(int count, int length, int vocab, std::mt19937_64& random) {
  std::uniform_int_distribution<int32_t> id(0, vocab - 1);
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(count));
  for (auto& prompt : prompts) {
    for (int i = 0; i < length; ++i) prompt.push_back(id(random));
  }
  return prompts;
}

kernels::Ceilings ceilings_of(Bench& bench, const BenchOptions& options) {
  kernels::CeilingOptions limits;
  limits.read_bytes = static_cast<size_t>(options.ceiling_gib * static_cast<double>(size_t{1} << 30));
  return kernels::measure_ceilings(*bench.offline->device().stream().pool, limits);
}

// The host's bandwidth changes while a benchmark runs; the better of two looks counts.
void look_again(Bench& bench, const BenchOptions& options, kernels::Ceilings& ceilings) {
  kernels::CeilingOptions limits;
  limits.read_bytes = static_cast<size_t>(options.ceiling_gib * static_cast<double>(size_t{1} << 30));
  std::string variant;
  const double again = kernels::measure_read_gbs(*bench.offline->device().stream().pool, limits, &variant);
  if (again > ceilings.read_gbs) {
    ceilings.read_gbs = again;
    ceilings.read_variant = variant;
  }
}

json::Object head(const Bench& bench, const BenchOptions& o, const kernels::Ceilings& ceilings) {
  return {{"architecture", bench.summary.architecture},
          {"parameters", bench.summary.parameters},
          {"device", bench.offline->device().info().name},
          {"dtype", o.dtype},
          {"threads", ceilings.threads}};
}

void print(const BenchOptions& options, const json::Object& figures) {
  if (options.json) {
    fmt::print("{}\n", json_line(figures));
    return;
  }
  for (const auto& item : figures) {
    const json::Value& value = item.value();
    const std::string text = value.is_double() ? fmt::format("{:.4g}", value.as_double()) : json_line(value);
    fmt::print("{:<28} {}\n", std::string(item.key()), text);
  }
}

// Seconds per step in which every sequence decodes: from the moment when all have their first token until the first
// ends.
double seconds_per_step(const std::vector<OfflineRun>& runs) {
  int64_t begin = 0, end = runs[0].token_ns.back();
  for (const OfflineRun& run : runs) {
    begin = std::max(begin, run.token_ns.front());
    end = std::min(end, run.token_ns.back());
  }
  int64_t steps = 0;
  for (const int64_t time : runs[0].token_ns) steps += time > begin && time <= end ? 1 : 0;
  return steps == 0 ? 0 : static_cast<double>(end - begin) / 1e9 / static_cast<double>(steps);
}

Status bench_decode(const BenchOptions& o) {
  const int length = o.context + o.tokens + 1;
  const int64_t least = std::max<int64_t>(64, o.batch);
  TERN_ASSIGN_OR_RETURN(Bench bench, prepare(o, o.batch, std::max(length, 64),
                                             static_cast<int>(std::clamp<int64_t>(int64_t{o.batch} * o.context, least,
                                                                                  std::max<int64_t>(8192, least)))));
  kernels::Ceilings ceilings = ceilings_of(bench, o);
  TERN_RETURN_IF_ERROR(bench.offline->start_engine());
  std::mt19937_64 random(1);
  std::vector<double> steps;
  for (int i = 0; i < o.repeats + 1; ++i) {
    const auto prompts = random_prompts(o.batch, o.context, bench.summary.vocab_size, random);
    TERN_ASSIGN_OR_RETURN(const auto runs, bench.offline->run(prompts, i == 0 ? std::min(o.tokens, 8) : o.tokens));
    if (i > 0) steps.push_back(seconds_per_step(runs));  // the first run warms up
  }
  bench.offline->stop_engine();
  look_again(bench, o, ceilings);
  std::sort(steps.begin(), steps.end());
  const double best = steps.front(), median = steps[steps.size() / 2];
  if (best <= 0) return make_error(ErrorCode::kInvalidArgument, "--tokens: too few to measure", "tokens");
  const double gbs = bench.cost.decode_weight_bytes / best / 1e9;
  json::Object figures = head(bench, o, ceilings);
  figures["batch"] = o.batch;
  figures["context"] = o.context;
  figures["new_tokens"] = o.tokens;
  figures["tokens_per_second"] = o.batch / best;
  figures["tokens_per_second_median"] = o.batch / median;
  figures["ms_per_step"] = best * 1e3;
  figures["weight_gb_per_step"] = bench.cost.decode_weight_bytes / 1e9;
  figures["weight_gb_per_second"] = gbs;
  figures["kv_gb_per_step"] =
      static_cast<double>(bench.summary.kv_bytes_per_token) * o.batch * (o.context + o.tokens / 2.0) / 1e9;
  figures["read_ceiling_gb_per_second"] = ceilings.read_gbs;
  figures["read_ceiling_variant"] = ceilings.read_variant;
  figures["ratio"] = gbs / ceilings.read_gbs;
  print(o, figures);
  return {};
}

Status bench_prefill(const BenchOptions& o) {
  TERN_ASSIGN_OR_RETURN(Bench bench, prepare(o, 1, std::max(o.tokens + 2, 64), std::max(o.tokens, 64)));
  const kernels::Ceilings ceilings = ceilings_of(bench, o);
  TERN_RETURN_IF_ERROR(bench.offline->start_engine());
  std::mt19937_64 random(1);
  std::vector<double> times;
  for (int i = 0; i < o.repeats + 1; ++i) {
    TERN_ASSIGN_OR_RETURN(const auto runs,
                          bench.offline->run(random_prompts(1, o.tokens, bench.summary.vocab_size, random), 1));
    if (i > 0) times.push_back(static_cast<double>(runs[0].token_ns[0] - runs[0].submitted_ns) / 1e9);
  }
  bench.offline->stop_engine();
  std::sort(times.begin(), times.end());
  const double best = times.front();
  const double flops = bench.cost.linear_flops_per_token * o.tokens + bench.cost.output_flops;
  const double peak = o.dtype == "float32" ? ceilings.f32_gflops : ceilings.dot_gflops();
  json::Object figures = head(bench, o, ceilings);
  figures["tokens"] = o.tokens;
  figures["tokens_per_second"] = o.tokens / best;
  figures["tokens_per_second_median"] = o.tokens / times[times.size() / 2];
  figures["milliseconds"] = best * 1e3;
  figures["linear_gflop"] = flops / 1e9;
  figures["gflops"] = flops / best / 1e9;
  figures["dot_ceiling_gflops"] = peak;
  figures["dot_ceiling_variant"] = peak == ceilings.bf16_gflops ? ceilings.bf16_variant : ceilings.f32_variant;
  figures["ratio"] = flops / best / 1e9 / peak;
  print(o, figures);
  return {};
}

int finished(const Status& status) { return status.ok() ? 0 : report(status.error()); }

}  // namespace

StepCost step_cost(const model::ModelSummary& summary, int64_t hidden, bool tied, int bytes) {
  const double table = static_cast<double>(summary.vocab_size) * static_cast<double>(hidden);
  const double active = static_cast<double>(summary.active_parameters);
  StepCost cost;
  // A decode step reads the output layer whole and one row of the embedding.
  cost.decode_weight_bytes = (tied ? active : active - table) * bytes;
  cost.linear_flops_per_token = 2 * (tied ? active - table : active - 2 * table);
  cost.output_flops = 2 * table;
  return cost;
}

int run_bench_decode(const std::vector<std::string>& args) {
  CLI::App parser("Decoding speed of the engine without a server", "tern bench decode");
  BenchOptions options;
  add_common(parser, options);
  parser.add_option("--batch", options.batch, "Sequences that decode together")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  parser.add_option("--context", options.context, "Tokens of each prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  parser.add_option("--tokens", options.tokens, "New tokens per sequence and run")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  if (const auto status = parse_options(parser, args)) return *status;
  return finished(bench_decode(options));
}

int run_bench_prefill(const std::vector<std::string>& args) {
  CLI::App parser("Prompt speed of the engine without a server", "tern bench prefill");
  BenchOptions options;
  options.tokens = 1024;
  add_common(parser, options);
  parser.add_option("--tokens", options.tokens, "Tokens of the prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  if (const auto status = parse_options(parser, args)) return *status;
  return finished(bench_prefill(options));
}

}  // namespace tern::app
