#include "serve/router.h"

#include "serve/http/target.h"

namespace tern::serve {
namespace {

constexpr uint8_t kBoth = kGetBit | kPostBit;

constexpr Route kRoutes[] = {
    {RouteId::kHealth, "/health", kGetBit, true, true, false, false, "Whether the server can answer", "", "text/plain"},
    {RouteId::kPing, "/ping", kBoth, true, true, false, false, "As /health", "", "text/plain"},
    {RouteId::kLoad, "/load", kGetBit, false, true, false, false, "The routes under /v1"},
    {RouteId::kModels, "/v1/models", kGetBit, false, true, false, false, "The models that are served"},
    {RouteId::kModel, "/v1/models/{model}", kGetBit, false, true, false, false, "One model"},
    {RouteId::kChat, "/v1/chat/completions", kPostBit, false, true, false, false, "Continues a conversation",
     "ChatCompletionRequest"},
    {RouteId::kCompletions, "/v1/completions", kPostBit, false, true, false, false, "Continues a text or token ids",
     "CompletionRequest"},
    {RouteId::kEmbeddings, "/v1/embeddings", kPostBit, false, true, false, false, "Embeddings (pooling models)",
     "EmbeddingRequest"},
    {RouteId::kReward, "/v1/reward", kPostBit, false, true, false, false, "Scores (pooling models)", "RewardRequest"},
    {RouteId::kChatReward, "/v1/chat/reward", kPostBit, false, true, false, false,
     "Scores of a conversation (pooling models)", "ChatRewardRequest"},
    {RouteId::kMetrics, "/metrics", kGetBit, false, false, true, false, "Figures for Prometheus", "", "text/plain"},
    {RouteId::kConfigInfo, "/config-info", kGetBit, false, false, true, false, "The configuration in effect"},
    {RouteId::kVersion, "/version", kGetBit, false, true, false, false, "The server's version"},
    {RouteId::kOpenApi, "/openapi.json", kGetBit, false, true, false, false, "This description"},
    {RouteId::kTokenize, "/tokenize", kPostBit, false, true, false, false, "Token ids of a text or a conversation",
     "TokenizeRequest"},
    {RouteId::kDetokenize, "/detokenize", kPostBit, false, true, false, false, "Text of token ids",
     "DetokenizeRequest"},
    {RouteId::kAbortRequests, "/v1/abort_requests", kPostBit, false, true, false, false, "Ends requests",
     "AbortRequest"},
    {RouteId::kPause, "/v1/pause", kPostBit, false, true, false, false, "Pauses generation"},
    {RouteId::kResume, "/v1/resume", kPostBit, false, true, false, false, "Resumes generation"},
    {RouteId::kIsPaused, "/v1/is_paused", kGetBit, false, true, false, false, "Whether generation is paused"},
    {RouteId::kSleep, "/v1/sleep", kPostBit, false, true, false, false, "Frees device memory"},
    {RouteId::kWakeup, "/v1/wakeup", kPostBit, false, true, false, false, "Takes device memory again"},
    {RouteId::kUpdateWeights, "/v1/update_weights", kPostBit, false, true, false, false, "Loads other weights",
     "UpdateWeightsRequest"},
    {RouteId::kUpdateModelWeight, "/update_model_weight", kGetBit, false, true, false, false, "Loads weights again"},
    {RouteId::kClearLoadWeight, "/clear_load_weight", kGetBit, false, true, false, false, "Drops the weights"},
    {RouteId::kRearrangeExperts, "/rearrange_experts", kPostBit, false, true, false, false, "Moves experts",
     "ExpertRequest"},
    {RouteId::kExpertStats, "/get_per_expert_tokens_stats", kPostBit, false, true, false, false, "Tokens per expert",
     "ExpertRequest"},
    {RouteId::kCheckRedundant, "/check_redundant", kPostBit, false, true, false, false, "State of redundant experts",
     "ExpertRequest"},
    {RouteId::kResetScheduler, "/controller/reset_scheduler", kPostBit, false, false, false, true, "Ends every request",
     "", "text/plain"},
    {RouteId::kScheduler, "/controller/scheduler", kPostBit, false, false, false, true, "Controls the scheduler",
     "ControlSchedulerRequest"},
};

}  // namespace

std::span<const Route> routes() { return kRoutes; }

bool serves(const Route& route, PortKind port, bool metrics_on_main) {
  switch (port) {
    case PortKind::kMain:
      return route.on_main || (route.on_metrics && metrics_on_main);
    case PortKind::kMetrics:
      return route.on_metrics;
    case PortKind::kController:
      break;
  }
  return route.on_controller;
}

const Route* match_route(const http::Head& head, PortKind port, bool metrics_on_main, std::string& rest) {
  rest.clear();
  for (const Route& route : kRoutes) {
    const std::string_view prefix = route.path.substr(0, route.path.find('{'));
    if (prefix.size() == route.path.size() || !serves(route, port, metrics_on_main)) continue;
    const std::string_view raw = head.raw_path;  // as it came: what the prefix hides behind escapes is another path
    if (raw.size() <= prefix.size() || !raw.starts_with(prefix)) continue;
    return http::decode_name(raw.substr(prefix.size()), rest) ? &route : nullptr;
  }
  return head.path.empty() ? nullptr : find_route(head.path, port, metrics_on_main);
}

const Route* find_route(std::string_view path, PortKind port, bool metrics_on_main) {
  for (const Route& route : kRoutes) {
    if (route.path != path || path.find('{') != std::string_view::npos) continue;
    return serves(route, port, metrics_on_main) ? &route : nullptr;
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
