// The table of routes. Deny by default: every route asks for a key unless it is marked public.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "serve/http/request.h"

namespace tern::serve {

enum class PortKind : uint8_t { kMain, kMetrics, kController };

enum class RouteId : uint8_t {
  kHealth,
  kPing,
  kLoad,
  kModels,
  kModel,
  kChat,
  kCompletions,
  kEmbeddings,
  kReward,
  kChatReward,
  kMetrics,
  kConfigInfo,
  kVersion,
  kOpenApi,
  kTokenize,
  kDetokenize,
  kAbortRequests,
  kPause,
  kResume,
  kIsPaused,
  kSleep,
  kWakeup,
  kUpdateWeights,
  kUpdateModelWeight,
  kClearLoadWeight,
  kRearrangeExperts,
  kExpertStats,
  kCheckRedundant,
  kResetScheduler,
  kScheduler,
  kUnknown
};

enum MethodBit : uint8_t { kGetBit = 1, kPostBit = 2 };

struct Route {
  RouteId id;
  std::string_view path;  // a last segment in braces takes the rest of the path, slashes included
  uint8_t methods;        // MethodBit; GET includes HEAD
  bool is_public;         // served without a key
  bool on_main, on_metrics, on_controller;
  std::string_view summary;                      // for /openapi.json
  std::string_view body = "";                    // the name of the JSON object a POST takes; "": none is needed
  std::string_view answer = "application/json";  // content type of status 200
};

std::span<const Route> routes();
// Whether a port serves a route. `metrics_on_main`: /metrics and /config-info live on the main port.
bool serves(const Route& route, PortKind port, bool metrics_on_main);
// The route of a request's target on a port, or null. `rest` becomes the decoded rest of the path, where the route
// takes one: a name to compare, which nothing else may read as a path.
const Route* match_route(const http::Head& head, PortKind port, bool metrics_on_main, std::string& rest);
// The route of a checked path on a port, or null; never one that takes a rest.
const Route* find_route(std::string_view path, PortKind port, bool metrics_on_main);
// The route that a path with a slash at its end means, or null.
const Route* find_redirect(std::string_view path, PortKind port, bool metrics_on_main);
bool method_allowed(const Route& route, http::Method method);
std::string allow_header(const Route& route);  // "allow: GET, HEAD, OPTIONS\r\n"
std::string load_json();                       // body of /load: the /v1 routes
// The body of /openapi.json: OpenAPI 3.1 of what the main port serves, made from the table of routes.
std::string openapi_json(std::string_view version, bool with_keys, bool metrics_on_main);

}  // namespace tern::serve
