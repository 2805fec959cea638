#include <iostream>

#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "cli/tools/model_folder.h"
#include "content/text/text_tools.h"

namespace tern::cli {
namespace {

int ended(const Status& status) {
  std::cout.flush();
  if (!status.ok()) return app::report(status.error());
  return std::cout ? 0 : app::kFailureExit;
}

}  // namespace

int run_tokenize(const std::vector<std::string>& args) {
  app::Options options("Reads lines and prints the token ids of each", "tern tokenize");
  std::string model;
  bool as_json = false;
  options.add_option("--model,-m", model, "Folder with the tokenizer files").required();
  options.add_flag("--json", as_json,
                   "Lines {\"text\": ...} give {\"ids\": [...]}, lines {\"ids\": [...]} give {\"text\": ...}");
  if (const auto status = app::parse_options(options, args)) return *status;
  const auto folder = model_folder(model);
  if (!folder.ok()) return app::report(folder.error());
  std::ios::sync_with_stdio(false);
  return ended(content::run_tokenize(*folder, std::cin, std::cout, as_json));
}

int run_render(const std::vector<std::string>& args) {
  app::Options options("Reads lines {\"messages\": ..., \"tools\": ...} and prints {\"prompt\": ...} for each",
                       "tern render");
  std::string model, chat_template;
  options.add_option("--model,-m", model, "Folder with the tokenizer files and the template").required();
  options.add_option("--chat-template", chat_template, "A template file, or the template itself");
  if (const auto status = app::parse_options(options, args)) return *status;
  const auto folder = model_folder(model);
  if (!folder.ok()) return app::report(folder.error());
  std::ios::sync_with_stdio(false);
  return ended(content::run_render(*folder, chat_template, std::cin, std::cout));
}

}  // namespace tern::cli
