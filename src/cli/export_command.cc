// tern export: a model whose weights are codes, as a folder that this program and other servers load.
#include "app/config/quantization_flag.h"
#include "app/options.h"
#include "cli/commands.h"
#include "cli/folder_command.h"
#include "cli/tools/model_folder.h"
#include "model/arch/registry.h"
#include "model/quantized/export.h"

namespace tern::cli {
namespace {

Status export_folder(const std::string& name, const std::string& quantization,
                     const model::FolderWriterOptions& write) {
  model::ExportOptions options;
  TERN_ASSIGN_OR_RETURN(options.load.path, model_folder(name));
  options.write = write;
  TERN_ASSIGN_OR_RETURN(const json::Value asked, app::quantization_value(quantization));
  TERN_ASSIGN_OR_RETURN(const std::string architecture, model::read_architecture(options.load.path, "config.json", {}));
  auto read = model::read_quantization(asked, architecture);
  if (!read.ok())
    return make_error(ErrorCode::kInvalidArgument, "--quantization " + read.error().message, "quantization");
  options.load.quantization = std::move(*read);
  return model::export_model(options);
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
  return run_folder_command(
      out, quiet, [&](const model::FolderWriterOptions& write) { return export_folder(name, quantization, write); });
}

}  // namespace tern::cli
