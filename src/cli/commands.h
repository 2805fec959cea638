// The commands of `tern`. Each takes what follows its name and gives the exit status.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tern::cli {

int run_serve(const std::vector<std::string>& args);
int run_multi_server(const std::vector<std::string>& args);
int run_serve_paddlenlp(const std::vector<std::string>& args);
int run_start_server(const std::vector<std::string>& args);
int run_stop_server(const std::vector<std::string>& args);
int run_download_model(const std::vector<std::string>& args);
int run_chat(const std::vector<std::string>& args);
int run_complete(const std::vector<std::string>& args);
int run_tokenizer(const std::vector<std::string>& args);
int run_health(const std::vector<std::string>& args);
int run_collect_env(const std::vector<std::string>& args);
int run_completion(const std::vector<std::string>& args);
int run_tokenize(const std::vector<std::string>& args);
int run_render(const std::vector<std::string>& args);
int run_verify(const std::vector<std::string>& args);
int run_ocr(const std::vector<std::string>& args);
int run_preprocess(const std::vector<std::string>& args);
int run_inspect(const std::vector<std::string>& args);
int run_export(const std::vector<std::string>& args);
int run_batch(const std::vector<std::string>& args);
int run_pull(const std::vector<std::string>& args);
int run_models(const std::vector<std::string>& args);
int run_remove(const std::vector<std::string>& args);
int run_convert_static(const std::vector<std::string>& args);

// A row of the table of commands (cli.cc): --help, completion and the man page are made from it.
struct Command {
  std::string_view name;
  std::string_view alias;    // "": none
  std::string_view summary;  // "": only this repository's own pages need it
  int (*run)(const std::vector<std::string>& args);
};
std::span<const Command> commands();
// Names and aliases of those with a summary.
std::vector<std::string_view> command_names();

// Called by a link of this name the program speaks of itself as FastDeploy's command line does.
bool called_fastdeploy();

}  // namespace tern::cli
