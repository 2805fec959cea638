// Servers as child processes of this one, a port each: FastDeploy's multi_api_server.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tern::app {

struct ServerOfGroup {
  std::string name;                    // in lines: "server 0 (port 8000)"
  std::vector<std::string> arguments;  // of this program
  std::vector<std::pair<std::string, std::string>> environment;
};

// Starts all and returns when all have ended. When one ends, a line says so and the others are asked to (SIGTERM).
// SIGTERM and SIGINT here go to all; they drain as they do alone, and a second signal ends that. SIGHUP goes to all.
// They end with this process, however that ends. Gives the exit status: 0 where all were asked to end and did so well.
Expected<int> run_servers(const std::vector<ServerOfGroup>& servers);

}  // namespace tern::app
