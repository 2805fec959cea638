#include "app/config/trace_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/http_client.h"

namespace tern::app {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// "name=value,name=value", as OpenTelemetry writes headers.
Expected<std::vector<std::string>> read_headers(std::string_view text) {
  std::vector<std::string> headers;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view pair = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view name = trimmed(pair.substr(0, equals));
    const bool plain = std::ranges::all_of(pair, [](char c) { return c >= 0x20 && c < 0x7f; });
    if (equals == std::string_view::npos || name.empty() || name.find_first_of(" :") != std::string_view::npos ||
        !plain) {
      return make_error(ErrorCode::kInvalidArgument,
                        "EXPORTER_OTLP_HEADERS is a list of name=value with commas between", "EXPORTER_OTLP_HEADERS");
    }
    headers.push_back(fmt::format("{}: {}", name, trimmed(pair.substr(equals + 1))));
  }
  return headers;
}

}  // namespace

Status read_trace_settings(const Environment& environment, Settings& settings) {
  std::string mode = environment.text("FD_TRACE");
  if (environment.boolean("TRACES_ENABLE") && !environment.given("FD_TRACE")) mode = "otel";  // the older switch
  settings.serve.trace_log = mode == "local" || mode == "all";
  SpanSettings& spans = settings.spans;
  spans.wanted = mode == "otel" || mode == "all";
  spans.service = environment.text("FD_SERVICE_NAME");
  spans.host = environment.text("FD_HOST_NAME");
  spans.delay_ms = static_cast<int>(environment.integer("FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS"));
  spans.batch = static_cast<int>(environment.integer("FD_OTLP_EXPORTER_MAX_EXPORT_BATCH_SIZE"));
  TERN_ASSIGN_OR_RETURN(spans.headers, read_headers(environment.text("EXPORTER_OTLP_HEADERS")));
  if (environment.text("TRACES_EXPORTER") == "console") return {};
  spans.endpoint = environment.text("EXPORTER_OTLP_ENDPOINT");
  if (spans.endpoint.empty()) {
    if (!spans.wanted) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "TRACES_EXPORTER otlp needs EXPORTER_OTLP_ENDPOINT, the collector's URL (http://HOST:4318)",
                      "EXPORTER_OTLP_ENDPOINT");
  }
  const auto url = client::parse_url(spans.endpoint);
  if (!url.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "EXPORTER_OTLP_ENDPOINT: " + url.error().message,
                      "EXPORTER_OTLP_ENDPOINT");
  }
  return {};
}

}  // namespace tern::app
