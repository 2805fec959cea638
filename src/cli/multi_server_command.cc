// FastDeploy's multi_api_server: a server for each engine of --data-parallel-size, on ports of their own.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "app/flags/environment.h"
#include "app/flags/flag_set.h"
#include "app/flags/flags.h"
#include "app/options.h"
#include "app/report.h"
#include "app/start/background.h"
#include "app/start/server_group.h"
#include "app/start/signals.h"
#include "cli/commands.h"

namespace tern::cli {
namespace {

using app::Environment;

struct Asked {
  std::string ports = "8000,8002", metrics_ports = "8800,8802", controller_ports = "-1";
  int servers = 2;
  std::vector<std::string> flags;  // behind --args, of every server
};

Error wrong(std::string_view flag, const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}", flag, message), std::string(flag));
}

// `taken`: ports named so far.
Expected<std::vector<int>> read_ports(const char* flag, const std::string& text, int servers, std::set<int>& taken) {
  std::vector<int> ports;
  for (const std::string_view word : app::split(text, ',')) {
    int port = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), port);
    if (error != std::errc() || end != word.data() + word.size() || port < 1 || port > 65535) {
      return wrong(flag, fmt::format("\"{}\": \"{}\" is no port", text, word));
    }
    if (!taken.insert(port).second) return wrong(flag, fmt::format("{}: port {} is named twice", text, port));
    ports.push_back(port);
  }
  if (static_cast<int>(ports.size()) != servers) {
    return wrong(flag, fmt::format("{}: {} port{} for --num-servers {}", text, ports.size(),
                                   ports.size() == 1 ? "" : "s", servers));
  }
  for (const int port : ports) {
    if (!app::port_is_free(port)) {
      return make_error(ErrorCode::kIo, fmt::format("--{} {}: port {} is taken", flag, text, port));
    }
  }
  return ports;
}

// What stands behind --args is checked once, before any server starts.
Status check_flags(const Asked& asked) {
  TERN_ASSIGN_OR_RETURN(const app::Arguments arguments, app::parse_arguments(asked.flags));
  const app::FlagSet& flags = arguments.flags;
  const struct {
    const char *flag, *instead;
  } own[] = {{"port", "--ports"},
             {"metrics-port", "--metrics-ports"},
             {"controller-port", "--controller-ports"},
             {"uds", "--ports"},
             {"local-data-parallel-id", "--num-servers"}};
  for (const auto& [flag, instead] : own) {
    if (flags.given(flag)) return wrong(flag, fmt::format("cannot stand behind --args: {} says it", instead));
  }
  if (flags.boolean("dry-run")) return wrong("dry-run", "is of one server: tern serve --dry-run");
  if (const int64_t size = flags.integer("data-parallel-size");
      flags.given("data-parallel-size") && size != asked.servers) {
    return wrong("data-parallel-size",
                 fmt::format("{} is not --num-servers {}: each engine has its server", size, asked.servers));
  }
  if (const auto* queues = flags.get("engine-worker-queue-port").if_array();
      queues != nullptr && flags.given("engine-worker-queue-port") &&
      static_cast<int>(queues->size()) != asked.servers) {
    return wrong("engine-worker-queue-port",
                 fmt::format("names {} for --num-servers {}", queues->size(), asked.servers));
  }
  return {};
}

Expected<std::vector<app::ServerOfGroup>> plan_servers(const Asked& asked) {
  TERN_RETURN_IF_ERROR(check_flags(asked));
  std::set<int> taken;
  TERN_ASSIGN_OR_RETURN(const std::vector<int> ports, read_ports("ports", asked.ports, asked.servers, taken));
  // A port for both: metrics are then answered beside the rest.
  std::vector<int> metrics = ports, controllers;
  if (asked.metrics_ports != asked.ports) {
    TERN_ASSIGN_OR_RETURN(metrics, read_ports("metrics-ports", asked.metrics_ports, asked.servers, taken));
  }
  if (asked.controller_ports != "-1") {
    TERN_ASSIGN_OR_RETURN(controllers, read_ports("controller-ports", asked.controller_ports, asked.servers, taken));
  }
  Environment::Pairs own = Environment::of_process();
  std::string logs;
  std::erase_if(own, [&](const auto& pair) {
    if (pair.first == "FD_LOG_DIR" && !pair.second.empty()) logs = pair.second + "/";
    return pair.first == "FD_LOG_DIR" || pair.first == "FD_ENABLE_MULTI_API_SERVER";
  });
  std::vector<app::ServerOfGroup> servers;
  for (int i = 0; i < asked.servers; ++i) {
    const auto at = static_cast<size_t>(i);
    app::ServerOfGroup& s = servers.emplace_back();
    s.name = fmt::format("server {} (port {})", i, ports[at]);
    s.arguments = {"serve"};
    s.arguments.insert(s.arguments.end(), asked.flags.begin(), asked.flags.end());
    for (const auto& [flag, value] : {std::pair{"port", ports[at]},
                                      {"metrics-port", metrics[at]},
                                      {"controller-port", controllers.empty() ? -1 : controllers[at]},
                                      {"data-parallel-size", asked.servers},
                                      {"local-data-parallel-id", i}}) {
      s.arguments.insert(s.arguments.end(), {fmt::format("--{}", flag), std::to_string(value)});
    }
    s.arguments.insert(s.arguments.end(), {"--exit-with-stdin", "true"});
    s.environment = own;
    s.environment.emplace_back("FD_LOG_DIR", fmt::format("{}log_{}", logs, i));
    s.environment.emplace_back("FD_ENABLE_MULTI_API_SERVER", "1");
  }
  return servers;
}

}  // namespace

int run_multi_server(const std::vector<std::string>& args) {
  app::hold_hangup();
  Asked asked;
  const auto rest = std::find(args.begin(), args.end(), "--args");
  if (rest != args.end()) asked.flags.assign(rest + 1, args.end());
  app::Options parser(
      "A server for each of several engines with a copy of the model; flags of all of them behind --args",
      "tern multi-api-server");
  parser.add_option("--ports", asked.ports, "Ports of the servers").capture_default_str();
  parser.add_option("--num-servers,--num_servers", asked.servers, "Servers, and engines (--data-parallel-size)")
      .range(1, 8)
      .capture_default_str();
  parser.add_option("--metrics-ports,--metrics_ports", asked.metrics_ports, "Ports of their metrics")
      .capture_default_str();
  parser.add_option("--controller-ports,--controller_ports", asked.controller_ports, "Ports to control them; -1: none")
      .capture_default_str();
  if (const auto status = app::parse_options(parser, {args.begin(), rest})) return *status;
  const auto servers = plan_servers(asked);
  if (!servers.ok()) return app::report(servers.error());
  const auto status = app::run_servers(*servers);
  return status.ok() ? *status : app::report(status.error());
}

}  // namespace tern::cli
