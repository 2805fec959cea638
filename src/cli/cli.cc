#include "cli/cli.h"
#include "app/report.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "app/start/process_limits.h"
#include "base/nearest_name.h"
#include "bench/bench.h"
#include "cli/commands.h"
#include "cli/help.h"

namespace tern::cli {
namespace {

struct Command {
  std::string_view name;
  int (*run)(const std::vector<std::string>& args);
};

int run_version(const std::vector<std::string>&) {
  fmt::print("tern {}\n", TERN_VERSION);
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

constexpr Command kCommands[] = {
    {"serve", run_serve},
    {"api_server", run_serve},
    {"multi-api-server", run_multi_server},
    {"multi_api_server", run_multi_server},
    {"serve-paddlenlp", run_serve_paddlenlp},
    {"start_server", run_start_server},
    {"stop_server", run_stop_server},
    {"download_model", run_download_model},
    {"chat", run_chat},
    {"complete", run_complete},
    {"bench", bench::run_bench},
    {"tokenize", run_tokenize},
    {"tokenizer", run_tokenizer},
    {"collect-env", run_collect_env},
    {"completion", run_completion},
    {"render", run_render},
    {"verify", run_verify},
    {"inspect", run_inspect},
    {"export", run_export},
    {"convert-static", run_convert_static},
    {"run-batch", run_batch},
    {"version", run_version},
    {"help", run_help},
    {"ocr", run_ocr},
    {"preprocess", run_preprocess},
    {"flags-markdown", run_markdown},
};

int unknown_command(const std::string& name) {
  const std::string_view near = nearest_name(name, command_names(), name.size() / 2);
  fmt::print(stderr, "tern: unknown command \"{}\"{} (tern help lists them)\n", name,
             near.empty() ? "" : fmt::format("; the nearest is {}", near));
  return app::kUsageExit;
}

}  // namespace

std::vector<std::string_view> command_names() {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command.name != "flags-markdown") names.push_back(command.name);
  }
  return names;
}

int run(int argc, char** argv) {
  if (const Status ready = app::prepare_process(); !ready.ok()) return app::report(ready.error());
  std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  // Links of these names to the program are the commands.
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view called = path.substr(path.rfind('/') + 1);
  if (called == "start_server" || called == "stop_server") args.insert(args.begin(), std::string(called));
  if (args.empty() || args[0] == "--help" || args[0] == "-h") return run_help(args);
  if (args[0] == "--version") return run_version(args);
  if (args[0].starts_with("-")) return run_serve(args);
  const std::string name = args[0];
  args.erase(args.begin());
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(args);
  }
  return unknown_command(name);
}

}  // namespace tern::cli
