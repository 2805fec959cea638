#include "serve/router.h"

namespace tern::serve {
namespace {

constexpr uint8_t kBoth = kGetBit | kPostBit;

constexpr Route kRoutes[] = {
    {RouteId::kHealth, "/health", kGetBit, true, true, false, false},
    {RouteId::kPing, "/ping", kBoth, true, true, false, false},
    {RouteId::kLoad, "/load", kGetBit, false, true, false, false},
    {RouteId::kModels, "/v1/models", kGetBit, false, true, false, false},
    {RouteId::kChat, "/v1/chat/completions", kPostBit, false, true, false, false},
    {RouteId::kCompletions, "/v1/completions", kPostBit, false, true, false, false},
    {RouteId::kEmbeddings, "/v1/embeddings", kPostBit, false, true, false, false},
    {RouteId::kReward, "/v1/reward", kPostBit, false, true, false, false},
    {RouteId::kChatReward, "/v1/chat/reward", kPostBit, false, true, false, false},
    {RouteId::kMetrics, "/metrics", kGetBit, false, false, true, false},
    {RouteId::kConfigInfo, "/config-info", kGetBit, false, false, true, false},
    {RouteId::kVersion, "/version", kGetBit, false, true, false, false},
    {RouteId::kTokenize, "/tokenize", kPostBit, false, true, false, false},
    {RouteId::kDetokenize, "/detokenize", kPostBit, false, true, false, false},
    {RouteId::kAbortRequests, "/v1/abort_requests", kPostBit, false, true, false, false},
    {RouteId::kPause, "/v1/pause", kPostBit, false, true, false, false},
    {RouteId::kResume, "/v1/resume", kPostBit, false, true, false, false},
    {RouteId::kIsPaused, "/v1/is_paused", kGetBit, false, true, false, false},
    {RouteId::kSleep, "/v1/sleep", kPostBit, false, true, false, false},
    {RouteId::kWakeup, "/v1/wakeup", kPostBit, false, true, false, false},
    {RouteId::kUpdateWeights, "/v1/update_weights", kPostBit, false, true, false, false},
    {RouteId::kUpdateModelWeight, "/update_model_weight", kGetBit, false, true, false, false},
    {RouteId::kClearLoadWeight, "/clear_load_weight", kGetBit, false, true, false, false},
    {RouteId::kRearrangeExperts, "/rearrange_experts", kPostBit, false, true, false, false},
    {RouteId::kExpertStats, "/get_per_expert_tokens_stats", kPostBit, false, true, false, false},
    {RouteId::kCheckRedundant, "/check_redundant", kPostBit, false, true, false, false},
    {RouteId::kResetScheduler, "/controller/reset_scheduler", kPostBit, false, false, false, true},
    {RouteId::kScheduler, "/controller/scheduler", kPostBit, false, false, false, true},
};

}  // namespace

std::span<const Route> routes() { return kRoutes; }

const Route* find_route(std::string_view path, PortKind port, bool metrics_on_main) {
  for (const Route& route : kRoutes) {
    if (route.path != path) continue;
    const bool here = port == PortKind::kMain      ? route.on_main || (route.on_metrics && metrics_on_main)
                      : port == PortKind::kMetrics ? route.on_metrics
                                                   : route.on_controller;
    return here ? &route : nullptr;
  }
  return nullptr;
}

const Route* find_redirect(std::string_view path, PortKind port, bool metrics_on_main) {
  if (path.size() < 2 || !path.ends_with('/')) return nullptr;
  return find_route(path.substr(0, path.size() - 1), port, metrics_on_main);
}

bool method_allowed(const Route& route, http::Method method) {
  switch (method) {
    case http::Method::kGet:
    case http::Method::kHead:
      return (route.methods & kGetBit) != 0;
    case http::Method::kPost:
      return (route.methods & kPostBit) != 0;
    default:
      return false;
  }
}

std::string allow_header(const Route& route) {
  std::string text = "allow: ";
  if ((route.methods & kGetBit) != 0) text += "GET, HEAD, ";
  if ((route.methods & kPostBit) != 0) text += "POST, ";
  return text + "OPTIONS\r\n";
}

std::string load_json() {
  std::string out = "{\"routes\":[";
  for (const Route& route : kRoutes) {
    if (!route.path.starts_with("/v1")) continue;
    if (out.back() != '[') out += ',';
    out += "{\"path\":\"";
    out += route.path;
    out += "\",\"methods\":[";
    if ((route.methods & kGetBit) != 0) out += "\"GET\"";
    if (route.methods == kBoth) out += ',';
    if ((route.methods & kPostBit) != 0) out += "\"POST\"";
    out += "],\"tags\":[]}";
  }
  return out + "]}";
}

}  // namespace tern::serve
