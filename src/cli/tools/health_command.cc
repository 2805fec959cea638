// `tern health`: whether a server is ready, as an exit status for containers, units and scripts.
#include <fmt/format.h>
#include <signal.h>

#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "client/http_client.h"

namespace tern::cli {

int run_health(const std::vector<std::string>& args) {
  app::Options parser("Asks a server whether it is ready; the exit status is 0 when it is, else 1", "tern health");
  std::string url_text = "http://127.0.0.1:8000", socket, ca_file;
  bool insecure = false, quiet = false;
  int seconds = 5;
  const app::Option url_option =
      parser.add_option("--url", url_text, "Address of the server (http or https); with a path, that is asked")
          .capture_default_str();
  parser.add_option("--uds", socket, "Unix socket of a server that was started with --uds").excludes(url_option);
  parser.add_option("--timeout", seconds, "Most seconds until the answer").capture_default_str().range(1, 3600);
  parser.add_option("--ca-file", ca_file, "Certificates to trust for https (PEM) instead of the system's");
  parser.add_flag("--insecure", insecure, "Take any certificate: a server on this machine is seldom called localhost");
  parser.add_flag("-q,--quiet", quiet, "Print nothing");
  if (const auto status = app::parse_options(parser, args)) return *status;
  auto url = client::parse_url(url_text);
  if (!url.ok()) return app::report(url.error());
  if (url->path.empty()) url->path = "/health";
  signal(SIGPIPE, SIG_IGN);
  const client::HttpCall call{
      .method = "GET", .ca_file = ca_file, .seconds = seconds, .unix_socket = socket, .check_certificate = !insecure};
  std::string body;
  const auto status = client::http_call(*url, call, [&](std::string_view bytes) {
    if (body.size() < 4096) body += bytes;
    return true;
  });
  if (!status.ok()) return quiet ? app::kFailureExit : app::report(status.error());
  const bool ready = *status == 200;
  if (!quiet && ready) fmt::print("ready\n");
  if (!quiet && !ready) {
    fmt::print(stderr, "tern: not ready: status {}{}{}\n", *status, body.empty() ? "" : ": ", body.substr(0, 200));
  }
  return ready ? 0 : app::kFailureExit;
}

}  // namespace tern::cli
