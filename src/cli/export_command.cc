// tern export: a model whose weights are codes, as a folder that this program and other servers load.
#include <fmt/format.h>

#include <atomic>
#include <csignal>

#include "app/config/model_facts.h"
#include "app/config/quantization_flag.h"
#include "app/flags/environment.h"
#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "model/arch/registry.h"
#include "model/quantized/export.h"

namespace tern::cli {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");
void on_stop(int) { g_stop = true; }

Status export_folder(const std::string& name, const std::string& out, const std::string& quantization, bool quiet) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  model::ExportOptions options;
  options.load.path = app::find_folder(name, environment);
  if (options.load.path.empty())
    return make_error(ErrorCode::kNotFound, fmt::format("there is no model folder {}", name), "model");
  options.out = out;
  TERN_ASSIGN_OR_RETURN(const json::Value asked, app::quantization_value(quantization));
  TERN_ASSIGN_OR_RETURN(const std::string architecture, model::read_architecture(options.load.path, "config.json", {}));
  auto read = model::read_quantization(asked, architecture);
  if (!read.ok())
    return make_error(ErrorCode::kInvalidArgument, "--quantization " + read.error().message, "quantization");
  options.load.quantization = std::move(*read);
  options.stop = [] { return g_stop.load(); };
  int shown = -1;
  if (!quiet) {
    options.progress = [&shown](size_t done, size_t all) {
      const int percent = static_cast<int>(static_cast<double>(done) * 100.0 / static_cast<double>(all));
      if (percent == shown) return;
      shown = percent;
      fmt::print(stderr, "\r{} % of {:.2f} GB", percent, static_cast<double>(all) / 1e9);
    };
  }
  const Status status = model::export_model(options);
  if (shown >= 0) fmt::print(stderr, "\n");
  return status;
}

}  // namespace

int run_export(const std::vector<std::string>& args) {
  app::Options parser("Writes a model with quantized weights, as --quantization makes them, into a new folder",
                      "tern export");
  std::string name, out, quantization;
  bool quiet = false;
  parser.add_option("model,--model,-m", name, "Folder of the model").required();
  parser.add_option("out,--out,-o", out, "Folder to make; it appears when it is complete").required();
  parser
      .add_option("--quantization", quantization, "As serve has it; whole numbers become compressed-tensors, e4m3 fp8")
      .required();
  parser.add_flag("--quiet", quiet, "No progress");
  if (const auto status = app::parse_options(parser, args)) return *status;
  signal(SIGINT, on_stop);
  signal(SIGTERM, on_stop);
  signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error like a full disk
  const Status status = export_folder(name, out, quantization, quiet);
  if (!status.ok()) {
    const int code = app::report(status.error());
    return g_stop ? 130 : code;
  }
  fmt::print("{}\n", out);
  return 0;
}

}  // namespace tern::cli
