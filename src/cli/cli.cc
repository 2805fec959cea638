#include "cli/cli.h"
#include "app/report.h"

#include <errno.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "app/start/process_limits.h"
#include "base/nearest_name.h"
#include "bench/bench.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/tools/man_page.h"

namespace tern::cli {
namespace {

int run_version(const std::vector<std::string>&) {
  fmt::print("{}{}\n", called_fastdeploy() ? "" : "tern ", TERN_VERSION);
  return 0;
}

int run_help(const std::vector<std::string>&) {
  fmt::print("{}", command_help());
  return 0;
}

int run_markdown(const std::vector<std::string>& args) {
  fmt::print("{}", !args.empty() && args[0] == "paddlenlp" ? paddlenlp_markdown() : flags_markdown());
  return 0;
}

int run_man_page(const std::vector<std::string>&) {
  fmt::print("{}", man_page());
  return 0;
}

constexpr Command kCommands[] = {
    {"serve", "api_server", "serves a model over the OpenAI protocol", run_serve},
    {"multi-api-server", "multi_api_server", "a server and a port for each engine of --data-parallel-size",
     run_multi_server},
    {"serve-paddlenlp", "", "serves it as PaddleNLP's server does, which its environment sets up (docs/paddlenlp.md)",
     run_serve_paddlenlp},
    {"start_server", "", "starts that server in the background", run_start_server},
    {"stop_server", "", "stops it", run_stop_server},
    {"download_model", "", "fetches the model that its environment names", run_download_model},
    {"pull", "", "fetches a model of a hub without serving it (docs/models.md)", run_pull},
    {"models", "", "lists the models by name that are here", run_models},
    {"rm", "", "removes a model that was fetched", run_remove},
    {"chat", "", "talks to a server; -q TEXT asks one question", run_chat},
    {"complete", "", "has a server go on with texts; -q TEXT gives one", run_complete},
    {"run-batch", "", "answers a file of requests, without a port", run_batch},
    {"ocr", "", "reads the text of pictures, with the model that ships or at a server", run_ocr},
    {"bench", "", "latency, throughput and serving figures", bench::run_bench},
    {"verify", "", "runs reference cases through this build", run_verify},
    {"inspect", "", "says what a model folder holds and needs", run_inspect},
    {"export", "", "writes a model with quantized weights into a new folder", run_export},
    {"convert-static", "", "writes a static export of PaddleNLP as safetensors into a new folder", run_convert_static},
    {"preprocess", "", "pictures and videos as the server prepares them: grid, tokens, hash", run_preprocess},
    {"tokenize", "", "text to token ids and back, line by line", run_tokenize},
    {"tokenizer", "", "one text to ids or back, and what the vocabulary is", run_tokenizer},
    {"render", "", "chat messages to the prompt", run_render},
    {"health", "", "asks a server whether it is ready: the exit status says it", run_health},
    {"collect-env", "", "says what a report of a fault should: machine, system, GPUs, variables", run_collect_env},
    {"completion", "", "prints what bash, zsh or fish need to complete these commands and their flags", run_completion},
    {"version", "", "prints the version", run_version},
    {"help", "", "prints this list", run_help},
    {"flags-markdown", "", "", run_markdown},
    {"man-page", "", "", run_man_page},
};

int unknown_command(const std::string& name) {
  const std::string_view near = nearest_name(name, command_names(), name.size() / 2);
  fmt::print(stderr, "tern: unknown command \"{}\"{} (tern help lists them)\n", name,
             near.empty() ? "" : fmt::format("; the nearest is {}", near));
  return app::kUsageExit;
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

std::vector<std::string_view> command_names() {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command.summary.empty()) continue;
    names.push_back(command.name);
    if (!command.alias.empty()) names.push_back(command.alias);
  }
  return names;
}

bool called_fastdeploy() { return std::string_view(program_invocation_short_name) == "fastdeploy"; }

int run(int argc, char** argv) {
  if (const Status ready = app::prepare_process(); !ready.ok()) return app::report(ready.error());
  std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  // Links of these names to the program are the commands.
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view called = path.substr(path.rfind('/') + 1);
  if (called == "start_server" || called == "stop_server") args.insert(args.begin(), std::string(called));
  if (args.empty() || args[0] == "--help" || args[0] == "-h") return run_help(args);
  if (args[0] == "--version" || args[0] == "-v") return run_version(args);
  if (args[0].starts_with("-")) return run_serve(args);
  const std::string name = args[0];
  args.erase(args.begin());
  for (const Command& command : kCommands) {
    if (command.name == name || (!command.alias.empty() && command.alias == name)) return command.run(args);
  }
  return unknown_command(name);
}

}  // namespace tern::cli
