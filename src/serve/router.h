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
  kChat,
  kCompletions,
  kEmbeddings,
  kReward,
  kChatReward,
  kMetrics,
  kConfigInfo,
  kVersion,
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
  std::string_view path;
  uint8_t methods;  // MethodBit; GET includes HEAD
  bool is_public;   // served without a key
  bool on_main, on_metrics, on_controller;
};

std::span<const Route> routes();
// The route of a checked path on a port, or null. `metrics_on_main`: /metrics and /config-info live on the main port.
const Route* find_route(std::string_view path, PortKind port, bool metrics_on_main);
// The route that a path with a slash at its end means, or null.
const Route* find_redirect(std::string_view path, PortKind port, bool metrics_on_main);
bool method_allowed(const Route& route, http::Method method);
std::string allow_header(const Route& route);  // "allow: GET, HEAD, OPTIONS\r\n"
std::string load_json();                       // body of /load: the /v1 routes

}  // namespace tern::serve
