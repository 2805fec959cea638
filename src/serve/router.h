// Routes: what a row says, and which row a request means. The table stands in worker/routes.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "serve/http/request.h"
#include "serve/http/response.h"

namespace tern::serve {

struct Shared;
struct Job;
struct Protocol;

enum class PortKind : uint8_t { kMain, kMetrics, kController, kPaddleNlp, kPaddleNlpMetrics };

enum MethodBit : uint8_t { kGetBit = 1, kPostBit = 2 };

enum PortBit : uint8_t {
  kMainPort = 1,
  kMetricsPort = 2,
  kControllerPort = 4,
  kPaddleNlpPort = 8,  // that front's ports: requests and figures
  kPaddleNlpMetricsPort = 16
};

enum class KeyRule : uint8_t {
  kNeeded,
  kPublic,
  kMetrics,  // needed, unless ServeConfig::metrics_open
  kAdmin,    // ServeConfig::admin_keys alone, where there are some; else as kNeeded
};

// What answers a request. One of the first five is set.
struct Handler {
  // On the I/O thread, from values at hand. `rest`: of the path, for a route that takes one.
  http::Response (*at_once)(Shared& shared, std::string_view rest) = nullptr;
  // The same for a file, which may be sent compressed, or not again.
  http::Response (*file)(const http::Head& head) = nullptr;
  // On the CPU pool, with the body: an answer that is only worth making while the client waits for it, or an order that
  // is carried out in any case.
  void (*question)(Shared& shared, Job& job) = nullptr;
  void (*order)(Shared& shared, Job& job) = nullptr;
  // Answers of the model. Every such route has the same admission (Exchanges::submit_job) and the same way.
  const Protocol* protocol = nullptr;
  // The body of an answer with a status from 400 on, in the route's own form; null: as OpenAI's.
  std::string (*error_body)(int status, std::string_view problem) = nullptr;

  bool generates() const { return protocol != nullptr; }
};

// One row is all there is of a route.
struct Route {
  std::string_view path;  // a last segment in braces takes the rest of the path, slashes included
  uint8_t methods = 0;    // MethodBit; GET includes HEAD
  uint8_t ports = 0;      // PortBit; what is for the metrics port is on the main port where there is no such port
  KeyRule key = KeyRule::kNeeded;
  Handler handler;
  std::string_view summary;                      // for /openapi.json
  std::string_view body = "";                    // the name of the JSON object a POST takes; "": none is needed
  std::string_view answer = "application/json";  // content type of status 200
  // Of the page for people: not there with --no-page, nor for other methods than GET, and no part of the protocol.
  bool page = false;
};

std::span<const Route> routes();
// Which keys are asked for.
struct KeysAsked {
  bool clients = false, admin = false;
  bool any() const { return clients || admin; }
  bool by(const Route& route) const {
    return route.key == KeyRule::kAdmin ? any() : clients && route.key != KeyRule::kPublic;
  }
};
// Whether a port serves a route. `metrics_on_main`: /metrics and /config-info live on the main port.
bool serves(const Route& route, PortKind port, bool metrics_on_main);
// The route of a request's target on a port, or null. `rest` becomes the decoded rest of the path, where the route
// takes one: a name to compare, which nothing else may read as a path.
const Route* match_route(const http::Head& head, PortKind port, bool metrics_on_main, std::string& rest);
// The route that a path with a slash at its end means, or null.
const Route* find_redirect(std::string_view path, PortKind port, bool metrics_on_main);
bool method_allowed(const Route& route, http::Method method);
std::string allow_header(const Route& route);  // "allow: GET, HEAD, OPTIONS\r\n"
std::string load_json();                       // body of /load: the /v1 routes
// The body of /openapi.json: OpenAPI 3.1 of what the main port serves, made from the table of routes.
std::string openapi_json(std::string_view version, const KeysAsked& keys, bool metrics_on_main);

}  // namespace tern::serve
