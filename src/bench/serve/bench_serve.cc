#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "app/flags/json_text.h"
#include "app/options.h"
#include "app/report.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "bench/serve/serve_bench.h"
#include "client/http_client.h"

namespace tern::bench {
namespace {

// The requests that sent nothing extra: what the others cost them.
json::Object summarize_plain(const ServeBench& o, const client::LoadReport& report) {
  client::LoadReport plain{.results = {}, .seconds = report.seconds, .cpu_seconds = report.cpu_seconds};
  for (size_t i = 0; i < report.results.size(); ++i) {
    if (!sends_extra(o, static_cast<int>(i))) plain.results.push_back(report.results[i]);
  }
  return client::summarize(plain);
}

// Waits for the server's /health. Errors: not within the time.
Status wait_ready(const ServeBench& o) {
  if (o.ready_seconds == 0) return {};
  TERN_ASSIGN_OR_RETURN(const client::Url url, client::parse_url(o.plan.url));
  const int64_t end = monotonic_ns() + int64_t{o.ready_seconds} * 1'000'000'000;
  const client::HttpCall call{.method = "GET",
                              .path = "/health",
                              .body = {},
                              .api_key = o.plan.api_key,
                              .ca_file = o.plan.ca_file,
                              .seconds = 5};
  while (true) {
    const auto status = client::http_call(url, call, [](std::string_view) { return true; });
    if (status.ok() && *status == 200) return {};
    if (monotonic_ns() >= end) {
      return make_error(ErrorCode::kUnavailable,
                        fmt::format("{} was not ready within {} seconds: {}", o.plan.url, o.ready_seconds,
                                    status.ok() ? fmt::format("status {}", *status) : status.error().message));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Status run(ServeBench& o, bool& failed) {
  TERN_RETURN_IF_ERROR(prepare_serve(o));
  TERN_RETURN_IF_ERROR(wait_ready(o));
  o.plan.body = [&](int index) { return serve_body(o, index); };
  TERN_ASSIGN_OR_RETURN(const client::LoadReport report, client::run_load(o.plan));
  json::Object summary = client::summarize(report);
  failed = summary.at("failed").as_int64() != 0;
  std::string plain;
  if (!o.extra.empty() && o.extra_share < 1) {
    summary["without_extra"] = summarize_plain(o, report);
    plain = "\nwithout --extra-body:\n" + client::summary_text(summary.at("without_extra").get_object());
  }
  const ServeResult result = serve_result(o, report);
  if (o.json)
    fmt::print("{}\n", app::json_line(summary));
  else
    fmt::print("{}{}{}", result.text, client::summary_text(summary), plain);
  return o.save || o.append ? save_result(o, result.values) : Status();
}

}  // namespace

int run_bench_serve(const std::vector<std::string>& args) {
  app::Options parser("Sends streamed requests to a server and prints the times a client sees", "tern bench serve");
  ServeBench o;
  add_serve_options(parser, o);
  if (const auto status = app::parse_options(parser, args)) return *status;
  bool failed = false;
  const Status status = run(o, failed);
  if (!status.ok()) return app::report(status.error());
  return failed ? app::kFailureExit : 0;
}

}  // namespace tern::bench
