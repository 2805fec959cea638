#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/config/device_settings.h"
#include "app/config/quantization_flag.h"
#include "app/hub/find_folder.h"
#include "app/options.h"
#include "app/report.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "model/arch/registry.h"
#include "model/loader.h"
#include "vision/tower.h"

namespace tern::bench {
namespace {

struct LoadBench {
  std::string model, load_choices = "default_v1", dtype = "bfloat16", model_override, device = "auto", quantization;
  int cpu_threads = 0, repeats = 3;
  bool json = false;
};

Status run(const LoadBench& o) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(const app::DeviceSettings settings,
                        device_settings(o.device, {.threads = o.cpu_threads}, environment));
  TERN_ASSIGN_OR_RETURN(const app::OpenedDevice open, app::open_device(settings));
  model::LoadOptions options;
  TERN_ASSIGN_OR_RETURN(options.path, app::obtain_folder({.name = o.model}, environment));
  options.dummy = o.load_choices == "dummy";
  options.activation = o.dtype == "float32" ? DType::kF32 : DType::kBF16;
  options.threads = o.cpu_threads;
  if (!o.model_override.empty()) {
    TERN_ASSIGN_OR_RETURN(const json::Value value, json::parse(o.model_override));
    if (!value.is_object()) return make_error(ErrorCode::kInvalidArgument, "--model-override must be a JSON object");
    options.overrides = value.get_object();
  }
  TERN_ASSIGN_OR_RETURN(const json::Value asked, app::quantization_value(o.quantization));
  TERN_ASSIGN_OR_RETURN(const std::string architecture,
                        model::read_architecture(options.path, options.config_name, options.overrides));
  TERN_ASSIGN_OR_RETURN(options.quantization, model::read_quantization(asked, architecture));
  std::vector<double> seconds;
  size_t bytes = 0;
  for (int i = 0; i < o.repeats; ++i) {
    const int64_t start = monotonic_ns();
    TERN_ASSIGN_OR_RETURN(const auto model, model::load_model(options, *open.device));
    TERN_ASSIGN_OR_RETURN(const auto tower, vision::load_tower(options, *open.device));
    seconds.push_back(static_cast<double>(monotonic_ns() - start) * 1e-9);
    bytes = model->info().weight_bytes + (tower ? tower->info().weight_bytes : 0);
  }
  std::sort(seconds.begin(), seconds.end());
  const double best = seconds.front(), median = seconds[seconds.size() / 2], size = static_cast<double>(bytes) / 1e9;
  if (o.json) {
    fmt::print("{}\n", json::dump(json::Object{{"device", open.device->info().name},
                                               {"weight_bytes", static_cast<int64_t>(bytes)},
                                               {"best_seconds", best},
                                               {"median_seconds", median},
                                               {"best_gbs", size / best}}));
    return {};
  }
  fmt::print("device    {}\nweights   {:.3f} GB\nbest      {:.3f} s, {:.2f} GB/s\nmedian    {:.3f} s, {:.2f} GB/s\n",
             open.device->info().name, size, best, size / best, median, size / median);
  return {};
}

}  // namespace

int run_bench_load(const std::vector<std::string>& args) {
  app::Options parser("Loads a model's weights, from files that the system's cache may hold, and says how fast",
                      "tern bench load");
  LoadBench o;
  parser.add_option("--model,-m", o.model, "Folder of the model").required();
  parser.add_option("--load-choices", o.load_choices, "default_v1: from files, dummy: random weights")
      .capture_default_str();
  parser.add_option("--dtype", o.dtype, "bfloat16 or float32").capture_default_str();
  parser.add_option("--model-override", o.model_override, "JSON that replaces values of config.json");
  parser.add_option("--quantization", o.quantization, "Weights made so while loading, as serve has it");
  parser.add_option("--device", o.device, "auto, cpu, cuda or cuda:N").capture_default_str();
  parser.add_option("--cpu-threads", o.cpu_threads, "Threads that read and convert; 0: physical cores")
      .capture_default_str();
  parser.add_option("--repeats", o.repeats, "Runs; the best and the median are printed")
      .capture_default_str()
      .range(1, 1000);
  parser.add_flag("--json", o.json, "Prints one JSON object");
  if (const auto status = app::parse_options(parser, args)) return *status;
  const Status status = run(o);
  std::fflush(stdout);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::bench
