#include "serve/router.h"

#include "serve/http/target.h"

namespace tern::serve {
namespace {

// The route of a checked path on a port, or null; never one that takes a rest.
const Route* find_route(std::string_view path, PortKind port, bool metrics_on_main) {
  for (const Route& route : routes()) {
    if (route.path != path || path.find('{') != std::string_view::npos) continue;
    if (serves(route, port, metrics_on_main)) return &route;
  }
  return nullptr;
}

}  // namespace

bool serves(const Route& route, PortKind port, bool metrics_on_main) {
  switch (port) {
    case PortKind::kMain:
      return (route.ports & kMainPort) != 0 || ((route.ports & kMetricsPort) != 0 && metrics_on_main);
    case PortKind::kMetrics:
      return (route.ports & kMetricsPort) != 0;
    case PortKind::kController:
      return (route.ports & kControllerPort) != 0;
    case PortKind::kPaddleNlp:
      return (route.ports & kPaddleNlpPort) != 0;
    case PortKind::kPaddleNlpMetrics:
      break;
  }
  return (route.ports & kPaddleNlpMetricsPort) != 0;
}

const Route* match_route(const http::Head& head, PortKind port, bool metrics_on_main, std::string& rest) {
  rest.clear();
  for (const Route& route : routes()) {
    const std::string_view prefix = route.path.substr(0, route.path.find('{'));
    if (prefix.size() == route.path.size() || !serves(route, port, metrics_on_main)) continue;
    const std::string_view raw = head.raw_path;  // as it came: what the prefix hides behind escapes is another path
    if (raw.size() <= prefix.size() || !raw.starts_with(prefix)) continue;
    return http::decode_name(raw.substr(prefix.size()), rest) ? &route : nullptr;
  }
  return head.path.empty() ? nullptr : find_route(head.path, port, metrics_on_main);
}

const Route* find_redirect(std::string_view path, PortKind port, bool metrics_on_main) {
  if (path.size() < 2 || !path.ends_with('/')) return nullptr;
  return find_route(path.substr(0, path.size() - 1), port, metrics_on_main);
}

bool method_allowed(const Route& route, http::Method method) {
  switch (method) {
    case http::Method::kGet:
      return (route.methods & kGetBit) != 0;
    case http::Method::kHead:  // changes nothing
      return (route.methods & kGetBit) != 0 && route.handler.order == nullptr;
    case http::Method::kPost:
      return (route.methods & kPostBit) != 0;
    default:
      return false;
  }
}

std::string allow_header(const Route& route) {
  std::string text = "allow: ";
  if (method_allowed(route, http::Method::kGet)) text += "GET, ";
  if (method_allowed(route, http::Method::kHead)) text += "HEAD, ";
  if ((route.methods & kPostBit) != 0) text += "POST, ";
  return text + "OPTIONS\r\n";
}

std::string load_json() {
  std::string out = "{\"routes\":[";
  for (const Route& route : routes()) {
    if (!route.path.starts_with("/v1") || (route.ports & kMainPort) == 0) continue;
    if (out.back() != '[') out += ',';
    out += "{\"path\":\"";
    out += route.path;
    out += "\",\"methods\":[";
    if ((route.methods & kGetBit) != 0) out += "\"GET\"";
    if (route.methods == (kGetBit | kPostBit)) out += ',';
    if ((route.methods & kPostBit) != 0) out += "\"POST\"";
    out += "],\"tags\":[]}";
  }
  return out + "]}";
}

}  // namespace tern::serve
