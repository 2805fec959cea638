// The commands of `tern`. Each takes what follows its name and gives the exit status.
#pragma once

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
int run_convert_static(const std::vector<std::string>& args);

// What stands in the table of commands, but for what only this repository's own pages need.
std::vector<std::string_view> command_names();

}  // namespace tern::cli
