#include "bench/bench_offline.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "app/flags/flag_set.h"
#include "app/flags/json_text.h"
#include "app/hub/find_folder.h"
#include "app/report.h"

namespace tern::bench {
namespace {

constexpr size_t kSpans = size_t{1} << 20;

// A number of config.json under the first of these names; 0: none.
double number(const json::Object& config, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const json::Value* v = json::find(config, name);
    if (v != nullptr && v->is_number()) return v->to_number<double>();
  }
  return 0;
}

StepCost cost_of(const model::ModelSummary& summary, int64_t hidden, const json::Object& config, int bytes) {
  StepCost cost = step_cost(summary, hidden, summary.tied, bytes);
  const double experts = number(config, {"num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"});
  const double chosen = number(config, {"num_experts_per_tok", "moe_k"});
  if (experts > chosen && chosen > 0) {
    cost.experts = experts, cost.chosen_experts = chosen;
    cost.expert_bytes =
        static_cast<double>(summary.parameters - summary.active_parameters) * experts / (experts - chosen) * bytes;
  }
  const double heads = number(config, {"num_attention_heads"}), dim = number(config, {"head_dim"});
  if (heads > 0) {
    cost.attention_flops_per_pair = 4 * heads * (dim > 0 ? dim : static_cast<double>(hidden) / heads) * summary.layers;
  }
  return cost;
}

std::vector<std::string> serve_arguments(const BenchOptions& o, int sequences, int length, int budget) {
  std::vector<std::string> args = {"--model",
                                   o.model,
                                   "--load-choices",
                                   o.load_choices,
                                   "--dtype",
                                   o.dtype,
                                   "--device",
                                   o.device,
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
  std::istringstream also(o.also);
  for (std::string word; also >> word;) args.push_back(word);
  return args;
}

}  // namespace

double StepCost::step_weight_bytes(double tokens) const {
  if (experts <= 0) return decode_weight_bytes;
  const double one = chosen_experts / experts;
  return decode_weight_bytes + expert_bytes * ((1 - std::pow(1 - one, tokens)) - one);
}

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

void add_bench_options(app::Options& parser, BenchOptions& options) {
  parser.add_option("--model,-m", options.model, "Folder of the model; with --load-choices dummy config.json is enough")
      .required();
  parser.add_option("--load-choices", options.load_choices, "default_v1: from files, dummy: random weights")
      .capture_default_str();
  parser.add_option("--dtype", options.dtype, "bfloat16 or float32").capture_default_str();
  parser.add_option("--model-override", options.model_override, "JSON that replaces values of config.json");
  parser.add_option("--device", options.device, "auto, cpu, cuda or cuda:N").capture_default_str();
  parser.add_option("--cpu-threads", options.cpu_threads, "Threads that compute on a CPU; 0: physical cores")
      .capture_default_str();
  parser
      .add_option("--ceiling-gib", options.ceiling_gib,
                  "GiB read to find the memory's bandwidth; 0: 1 on a CPU, else 4")
      .capture_default_str();
  parser.add_option("--repeats", options.repeats, "Runs; the best and the median are printed")
      .capture_default_str()
      .range(1, 1000);
  parser.add_option("--trace", options.trace, "File for a Chrome trace of the steps");
  parser.add_option("--serve-flags", options.also, "Further flags of `tern serve` for the engine, as one text");
  parser.add_flag("--json", options.json, "Prints one JSON object");
}

Expected<Bench> prepare_bench(const BenchOptions& o, int sequences, int length, int budget) {
  TERN_ASSIGN_OR_RETURN(app::Arguments arguments, app::parse_arguments(serve_arguments(o, sequences, length, budget)));
  app::Environment::Pairs variables = app::Environment::of_process();
  // There are blocks for all sequences and no more: a reserve for those that decode would keep others waiting.
  variables.emplace_back("FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL", "0");
  TERN_ASSIGN_OR_RETURN(app::Environment environment, app::Environment::from(variables));
  TERN_ASSIGN_OR_RETURN(const std::string folder, app::obtain_folder(app::wish_of(arguments.flags), environment));
  TERN_ASSIGN_OR_RETURN(const app::ModelFacts facts, app::read_model_facts(folder, arguments.flags));
  Bench bench;
  TERN_ASSIGN_OR_RETURN(bench.settings, app::resolve(std::move(arguments.flags), std::move(environment), facts));
  TERN_ASSIGN_OR_RETURN(bench.summary, model::summarize_model(bench.settings.load));
  if (!o.trace.empty()) {
    TERN_ASSIGN_OR_RETURN(bench.trace, app::TraceFile::open(o.trace));
  }
  bench.log = std::make_unique<StepLog>(kSpans, bench.trace.get());
  bench.settings.engine.trace = bench.log.get();
  TERN_ASSIGN_OR_RETURN(bench.offline, app::Offline::load(bench.settings));
  TERN_ASSIGN_OR_RETURN(const json::Value config, json::parse_file(folder + "/config.json"));
  bench.cost = cost_of(bench.summary, bench.offline->model().info().hidden_size, config.as_object(),
                       o.dtype == "float32" ? 4 : 2);
  return bench;
}

Expected<KernelCeilings> bench_ceilings(Bench& bench, const BenchOptions& options) {
  app::OpenedDevice& open = bench.offline->open();
  const double gib = options.ceiling_gib > 0 ? options.ceiling_gib : open.library == nullptr ? 1 : 4;
  return measure_ceilings(open, gib, options.dtype == "float32" ? DType::kF32 : DType::kBF16);
}

std::vector<std::vector<int32_t>> random_prompts(int count, int length, int vocab, std::mt19937_64& random) {
  std::uniform_int_distribution<int32_t> id(0, vocab - 1);
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(count));
  for (auto& prompt : prompts) {
    for (int i = 0; i < length; ++i) prompt.push_back(id(random));
  }
  return prompts;
}

json::Object bench_head(const Bench& bench, const BenchOptions& o) {
  return {{"architecture", bench.summary.architecture},
          {"parameters", bench.summary.parameters},
          {"device", bench.offline->device().info().name},
          {"dtype", o.dtype}};
}

void print_bench(const BenchOptions& options, const json::Object& figures) {
  if (options.json) {
    fmt::print("{}\n", app::json_line(figures));
    return;
  }
  for (const auto& item : figures) {
    const json::Value& value = item.value();
    const std::string text = value.is_double() ? fmt::format("{:.4g}", value.as_double()) : app::json_line(value);
    fmt::print("{:<28} {}\n", std::string(item.key()), text);
  }
}

}  // namespace tern::bench
