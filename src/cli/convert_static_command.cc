// tern convert-static: a static export of PaddleNLP as a folder of safetensors.
#include "app/options.h"
#include "cli/commands.h"
#include "cli/folder_command.h"
#include "cli/tools/model_folder.h"
#include "model/static/convert.h"

namespace tern::cli {
namespace {

Status convert_folder(const std::string& name, const model::FolderWriterOptions& write) {
  model::ConvertOptions options;
  TERN_ASSIGN_OR_RETURN(options.load.path, model_folder(name));
  options.write = write;
  return model::convert_static(options);
}

}  // namespace

int run_convert_static(const std::vector<std::string>& args) {
  app::Options parser("Writes a static export of PaddleNLP as safetensors into a new folder", "tern convert-static");
  std::string name, out;
  bool quiet = false;
  parser.add_option("model,--model,-m", name, "Folder with rank_0/model.pdiparams").required();
  parser.add_option("out,--out,-o", out, "Folder to make; it appears when it is complete").required();
  parser.add_flag("--quiet", quiet, "No progress");
  if (const auto status = app::parse_options(parser, args)) return *status;
  return run_folder_command(out, quiet,
                            [&](const model::FolderWriterOptions& write) { return convert_folder(name, write); });
}

}  // namespace tern::cli
