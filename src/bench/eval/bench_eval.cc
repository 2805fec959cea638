// `tern bench eval`: FastDeploy's way to run lm-eval, which is installed apart. For a model's folder a server of this
// process answers it.
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "app/access/private_key.h"
#include "app/config/settings.h"
#include "app/hub/find_folder.h"
#include "app/hub/hub_plan.h"
#include "app/options.h"
#include "app/report.h"
#include "app/start/loaded_server.h"
#include "bench/bench.h"
#include "bench/eval/held_out.h"

namespace tern::bench {
namespace {

struct EvalOptions {
  std::string model = "hf", model_args, output, server_flags, url, key, ca_file;
  std::vector<std::string> held_out;
  double limit = 0;
  int together = 32;
  std::vector<std::string> rest;  // of lm-eval
};

Error wrong(std::string what, const char* flag) {
  return make_error(ErrorCode::kInvalidArgument, std::move(what), flag);
}

// Flags of a server that only this process and its children can reach.
Expected<app::Settings> server_settings(const EvalOptions& o, const std::string& folder, const std::string& key) {
  std::vector<std::string> args = {"--model", folder};
  std::istringstream words(o.server_flags);
  for (std::string word; words >> word;) args.push_back(word);
  TERN_ASSIGN_OR_RETURN(app::Arguments arguments, app::parse_arguments(args));
  for (const char* own : {"host", "port", "uds", "metrics-port", "controller-port", "api-key", "api-key-file",
                          "ssl-certfile", "paddlenlp"}) {
    if (arguments.flags.given(own))
      return wrong(fmt::format("--{} has no meaning here: no port is opened to others", own), own);
  }
  arguments.flags.set("host", "127.0.0.1", app::Source::kCommandLine);
  arguments.flags.set("port", 0, app::Source::kCommandLine);
  arguments.flags.set("api-key", json::Array{json::Value(key)}, app::Source::kCommandLine);
  TERN_ASSIGN_OR_RETURN(app::Environment environment, app::Environment::from(app::Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(const app::ModelFacts facts, app::read_model_facts(folder, arguments.flags));
  return app::resolve(std::move(arguments.flags), std::move(environment), facts);
}

Expected<std::unique_ptr<app::LoadedServer>> start_server(const EvalOptions& o, const std::string& folder,
                                                          const std::string& key) {
  TERN_ASSIGN_OR_RETURN(const app::Settings settings, server_settings(o, folder, key));
  TERN_ASSIGN_OR_RETURN(auto server, app::LoadedServer::load(settings));
  TERN_RETURN_IF_ERROR(server->listen());
  return server;
}

// This process's variables for lm-eval: the key of the server, which no proxy is asked for.
std::vector<std::string> variables(const std::string& key) {
  std::vector<std::string> out;
  std::string direct = "127.0.0.1";
  for (const auto& [name, value] : app::Environment::of_process()) {
    if (!key.empty() && (name == "no_proxy" || name == "NO_PROXY") && !value.empty()) direct += "," + value;
    const bool ours = !key.empty() && (name == "OPENAI_API_KEY" || name == "no_proxy" || name == "NO_PROXY");
    if (!ours) out.push_back(name + "=" + value);
  }
  if (key.empty()) return out;
  out.push_back("OPENAI_API_KEY=" + key);
  out.push_back("no_proxy=" + direct);
  out.push_back("NO_PROXY=" + direct);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Gives lm-eval's exit status.
Expected<int> run_lm_eval(std::vector<std::string> words, const std::string& key) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  fmt::print(stderr, "Executing command: {}\n", line);
  std::vector<std::string> environment = variables(key);
  std::vector<char*> args = pointers(words), variables = pointers(environment);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, "lm-eval", nullptr, nullptr, args.data(), variables.data());
  if (error != 0) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("lm-eval does not start: {} (pip install 'lm-eval[api]'; --held-out FILE needs none)",
                                  std::strerror(error)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Expected<int> evaluate_tasks(const EvalOptions& o, const std::string& folder) {
  std::unique_ptr<app::LoadedServer> server;
  std::string key, model = o.model, model_args = o.model_args;
  if (!folder.empty()) {
    key = app::private_key();
    TERN_ASSIGN_OR_RETURN(server, start_server(o, folder, key));
    model = "local-completions";
    // What the user gave stands behind, where it wins.
    model_args =
        fmt::format("model=default,base_url=http://127.0.0.1:{}/v1/completions,tokenizer={},num_concurrent={}{}",
                    server->server().port(), folder, o.together, (o.model_args.empty() ? "" : ",") + o.model_args);
  }
  std::vector<std::string> words = {"lm-eval", "--model", model};
  if (!model_args.empty()) words.insert(words.end(), {"--model_args", model_args});
  if (!o.output.empty()) words.insert(words.end(), {"--output_path", o.output});
  if (o.limit > 0) words.insert(words.end(), {"--limit", fmt::format("{}", o.limit)});
  words.insert(words.end(), o.rest.begin(), o.rest.end());
  return run_lm_eval(std::move(words), key);
}

Status evaluate_held_out(const EvalOptions& o, const std::string& folder) {
  if (!o.rest.empty()) return wrong(fmt::format("{} is of lm-eval: not with --held-out", o.rest.front()), "held-out");
  if (o.url.empty() == folder.empty()) return wrong("--held-out needs --model DIR or --url, one of them", "held-out");
  TERN_ASSIGN_OR_RETURN(const auto questions, read_questions(o.held_out, static_cast<int>(o.limit)));
  EvalServer at{.key = o.key, .ca_file = o.ca_file};
  std::unique_ptr<app::LoadedServer> server;
  if (folder.empty()) {
    TERN_ASSIGN_OR_RETURN(at.url, client::parse_url(o.url));
    if (at.url.path.empty()) at.url.path = "/v1";
  } else {
    at.key = app::private_key();
    TERN_ASSIGN_OR_RETURN(server, start_server(o, folder, at.key));
    at.url = {.host = "127.0.0.1", .port = std::to_string(server->server().port()), .path = "/v1"};
  }
  TERN_ASSIGN_OR_RETURN(const auto answers, ask_all(at, questions, o.together));
  const json::Object scores = score(questions, answers);
  fmt::print("{}", score_text(scores));
  if (o.output.empty()) return {};
  return write_result(o.output, "output-path", scores);
}

Expected<int> run(const EvalOptions& o) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  std::string folder = app::find_folder(o.model, environment);
  if (folder.empty() && app::is_repo_name(o.model)) {  // no kind of model of lm-eval's
    TERN_ASSIGN_OR_RETURN(folder, app::obtain_folder({.name = o.model}, environment));
  }
  if (folder.empty() && !o.server_flags.empty())
    return wrong(fmt::format("--serve-flags needs --model DIR; there is no folder {}", o.model), "serve-flags");
  if (o.held_out.empty()) {
    if (!o.url.empty() || !o.key.empty() || !o.ca_file.empty())
      return wrong("--url, --api-key and --ca-file are for --held-out; lm-eval has --model_args", "url");
    return evaluate_tasks(o, folder);
  }
  TERN_RETURN_IF_ERROR(evaluate_held_out(o, folder));
  return 0;
}

}  // namespace

int run_bench_eval(const std::vector<std::string>& args) {
  app::Options parser(
      "Runs an installed lm-eval, whose further options (--tasks, --num_fewshot, --include_path, ...) pass on to it: "
      "for "
      "a model's folder against a server of this process, else as --model and --model_args say. Or measures with files "
      "of questions and answers",
      "tern bench eval");
  EvalOptions o;
  parser.add_option("--model,-m", o.model, "Folder of a model, or lm-eval's kind of model (hf, local-completions, ...)")
      .capture_default_str();
  parser.add_option("--model-args,-a", o.model_args,
                    "lm-eval's --model_args; behind those of a server of this process");
  parser.add_option(
      "--held-out", o.held_out,
      "JSON lines of {\"row\", \"prompt\", \"image\", \"answer\"} or {\"task\", \"messages\", \"answer\"}: "
      "measures with these, without lm-eval");
  parser.add_option("--output-path,-o", o.output, "File of the scores; of lm-eval also a folder");
  parser.add_option("--limit,-L", o.limit, "Questions of each task or row; below 1 of lm-eval a share").non_negative();
  parser.add_option("--concurrency", o.together, "Requests at a time").capture_default_str().range(1, 1024);
  parser.add_option("--serve-flags", o.server_flags, "Flags of tern serve for the model's server, as one text");
  parser.add_option("--url", o.url, "Address of a running server for --held-out, in place of --model");
  parser.add_option("--api-key", o.key, "Bearer key of that server");
  parser.add_option("--ca-file", o.ca_file, "Certificates to trust for https (PEM) instead of the system's");
  parser.pass_on(o.rest);
  if (const auto status = app::parse_options(parser, args)) return *status;
  signal(SIGPIPE, SIG_IGN);
  const auto status = run(o);
  return status.ok() ? *status : app::report(status.error());
}

}  // namespace tern::bench
