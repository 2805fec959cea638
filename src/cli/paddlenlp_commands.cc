// start_server, stop_server and download_model.py of PaddleNLP's server (paddlenlp-server.md 5).
#include <netdb.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "app/download/download.h"
#include "app/options.h"
#include "app/paddlenlp/paddlenlp.h"
#include "app/report.h"
#include "app/start/background.h"
#include "cli/commands.h"

namespace tern::cli {
namespace {

using app::Environment;
namespace fs = std::filesystem;

constexpr int kStopSeconds = 300;

std::string value_of(const Environment::Pairs& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return value;
  }
  return {};
}

std::string log_folder(const Environment::Pairs& pairs) {
  const std::string folder = value_of(pairs, "FD_LOG_DIR");
  return folder.empty() ? "log" : folder;
}

std::string pid_file_in(const std::string& folder) { return folder + "/server.pid"; }

// What `hostname -i` says.
std::string own_address() {
  char name[256] = {};
  addrinfo hints{};
  addrinfo* found = nullptr;
  hints.ai_family = AF_INET;
  if (::gethostname(name, sizeof name - 1) != 0 || ::getaddrinfo(name, nullptr, &hints, &found) != 0) return {};
  char text[64] = {};
  const int status = ::getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(found);
  return status == 0 ? text : "";
}

bool ports_are_free(const Environment::Pairs& pairs) {
  for (const char* name :
       {"HEALTH_HTTP_PORT", "SERVICE_GRPC_PORT", "METRICS_HTTP_PORT", "INTER_PROC_PORT", "SERVICE_HTTP_PORT"}) {
    const int port = std::atoi(value_of(pairs, name).c_str());
    if (port < 1 || app::port_is_free(port)) continue;
    fmt::print("PORT: {} occupied! Please change the port!\n", port);
    return false;
  }
  return true;
}

// Everything that the environment alone can get wrong, so that the one who types the command sees it.
Status check_environment(const Environment::Pairs& pairs, bool& master) {
  TERN_ASSIGN_OR_RETURN(const Environment environment, app::paddlenlp_environment(pairs));
  auto resolved = app::resolve_paddlenlp(environment, {});
  if (!resolved.ok()) {
    master = environment.integer("MP_NNODE") == 1 || environment.text("POD_0_IP") == environment.text("HOST_IP");
    return resolved.error();
  }
  master = resolved->master;
  for (const std::string& warning : resolved->warnings) fmt::print("{}\n", warning);
  return {};
}

int failed(const Error& error) {
  std::fflush(stdout);
  return app::report(error);
}

}  // namespace

int run_start_server(const std::vector<std::string>& args) {
  std::string model_name;
  app::Options parser("Starts PaddleNLP's server in the background, as its environment says", "start_server");
  parser.add_option("MODEL_NAME", model_name, "Static model that is fetched into MODEL_DIR/MODEL_NAME first");
  if (const auto status = app::parse_options(parser, args)) return *status;
  Environment::Pairs own = Environment::of_process();
  const std::string nodes = value_of(own, "MP_NNODE");
  if (!nodes.empty() && nodes != "1" && value_of(own, "HOST_IP").empty()) own.emplace_back("HOST_IP", own_address());
  Environment::Pairs pairs = app::script_environment(std::move(own), model_name);
  bool master = true;
  const Status checked = check_environment(pairs, master);
  fmt::print("{}\n", master ? "Master node, start serving ..." : "Slave node, start push mode");
  if (!checked.ok()) return failed(checked.error());
  if (!ports_are_free(pairs)) return app::kFailureExit;
  std::error_code error;
  if (!model_name.empty()) fs::create_directories(value_of(pairs, "MODEL_DIR"), error);
  const std::string folder = log_folder(pairs);
  fs::create_directories(folder, error);
  if (error) return failed(make_error(ErrorCode::kIo, fmt::format("{}: {}", folder, error.message())));
  const bool console = value_of(pairs, "OUTPUT_LOG_TO_CONSOLE") == "1";
  for (const char* name : {"/server.log", "/console.log"}) fs::remove(folder + name, error);
  const std::string output = folder + (console ? "/console.log" : "/server.log");
  const auto pid = app::start_background({{"serve-paddlenlp"}, pairs, output, pid_file_in(folder)});
  if (!pid.ok()) return failed(pid.error());
  fmt::print("The logs of the server (process {}) are in {}: what it prints in {}\n", *pid, folder, output);
  return 0;
}

int run_stop_server(const std::vector<std::string>& args) {
  int seconds = -1;
  app::Options parser("Stops the server that start_server has started", "stop_server");
  parser.add_option("TIMEOUT", seconds, "Seconds that open requests have").range(0, 1'000'000);
  if (const auto status = app::parse_options(parser, args)) return *status;
  const std::string pid_file = pid_file_in(log_folder(Environment::of_process()));
  const auto server = app::Background::find(pid_file);
  if (server) {
    server->send(SIGINT);
  } else {
    fmt::print("Can not find the server of {}\n", pid_file);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds >= 0 ? seconds : kStopSeconds);
  auto next_line = std::chrono::steady_clock::now();
  while (server && server->running() && std::chrono::steady_clock::now() < deadline) {
    if (std::chrono::steady_clock::now() >= next_line) {
      fmt::print("cleaning process, please wait ...\n");
      std::fflush(stdout);
      next_line += std::chrono::seconds(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (server && server->running()) {
    fmt::print("forcibly kill all process ...\n");
    server->send(SIGKILL);
    while (server->running()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } else {
    fmt::print("clean finished.\n");
  }
  std::error_code error;
  fs::remove(pid_file, error);
  fmt::print("all process terminated.\n");
  return 0;
}

int run_download_model(const std::vector<std::string>& args) {
  std::string model_name = "deepseek-ai/DeepSeek-R1/weight_only_int4", folder = "downloads", mode = "master", draft;
  int nodes = 1;
  app::Options parser("Fetches a static model", "download_model.py");
  parser.add_option("--model_name,-m", model_name, "Name of the model").capture_default_str();
  parser.add_option("--dir,-d", folder, "Folder below which it is put").capture_default_str();
  parser.add_option("--nnodes,-n", nodes, "Nodes it is cut for").capture_default_str();
  parser.add_option("--mode,-M", mode, "Which of them this is").one_of({"master", "slave"}).capture_default_str();
  parser.add_option("--speculate_model_path,-s", draft, "Folder for the draft model, which is fetched too");
  if (const auto status = app::parse_options(parser, args)) return *status;
  if (nodes < 1) {
    return failed(make_error(ErrorCode::kInvalidArgument,
                             fmt::format("Invalid nnodes: {}. nnodes must be >= 1.", nodes), "nnodes"));
  }
  auto environment = app::paddlenlp_environment(Environment::of_process());
  if (!environment.ok()) return failed(environment.error());
  app::DownloadPlan plan = app::download_plan(*environment, model_name);
  plan.part = app::download_part(nodes, mode == "master");
  plan.folder = folder + "/" + model_name;
  if (const Status status = app::download(plan); !status.ok()) return failed(status.error());
  if (draft.empty()) return 0;
  plan.part = "mtp";
  plan.folder = draft;
  const Status status = app::download(plan);
  return status.ok() ? 0 : failed(status.error());
}

}  // namespace tern::cli
