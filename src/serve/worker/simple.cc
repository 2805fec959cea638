// Answers that need no work beyond reading a few values.
#include <fmt/format.h>

#include "base/clock.h"
#include "json/json.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/writers.h"
#include "serve/worker/shared.h"
#include "serve/worker/worker.h"

namespace tern::serve {
namespace {

http::Response health(const Shared& shared) {
  return shared.healthy() ? http::text_response(200, "") : http::text_response(404, "Worker Service Not Healthy");
}

std::string_view model_id(const ServeConfig& config) {
  return config.served_model_name.empty() ? config.model_path : config.served_model_name;
}

std::string model_json(Shared& shared) {
  const ServeConfig& config = shared.config;
  const auto now = static_cast<int64_t>(wall_seconds());
  std::string out = "{\"id\":";
  json::append_quoted(out, model_id(config));
  out += fmt::format(",\"object\":\"model\",\"created\":{},\"owned_by\":\"FastDeploy\",\"root\":", now);
  json::append_quoted(out, config.model_path);
  return out + fmt::format(
                   ",\"parent\":null,\"max_model_len\":{},\"permission\":[{{\"id\":\"modelperm-{}\",\"object\":"
                   "\"model_permission\",\"created\":{},\"allow_create_engine\":false,\"allow_sampling\":true,"
                   "\"allow_logprobs\":true,\"allow_search_indices\":false,\"allow_view\":true,"
                   "\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,\"is_blocking\":false}}]}}",
                   config.max_model_len, shared.random_hex(), now);
}

http::Response one_model(Shared& shared, std::string_view id) {
  if (id == model_id(shared.config)) return http::json_response(200, model_json(shared));
  std::string body = "{\"error\":{\"message\":";
  json::append_quoted(body, fmt::format("The model `{}` does not exist.", id));
  return http::json_response(
      404, body + ",\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}");
}

std::string envelope(Shared& shared, std::string_view status, std::string_view message, std::string_view result) {
  std::string out = "{\"request_id\":\"control-" + shared.random_hex() + "\",\"status\":\"" + std::string(status) +
                    "\",\"error_message\":";
  if (message.empty())
    out += "null";
  else
    json::append_quoted(out, message);
  out += ",\"result\":";
  out += result;
  return out + "}";
}

// {"error":{...}} with the code as text, for success too: the form of the original's newest sources.
http::Response scheduler_answer(int status, std::string_view message, std::string_view code) {
  std::string body = "{\"error\":{\"message\":";
  json::append_quoted(body, message);
  return http::json_response(status, fmt::format("{},\"type\":null,\"param\":null,\"code\":\"{}\"}}}}", body, code));
}

std::string abort_result(const AbortSweep& sweep) {
  std::string result = "{\"aborted\":[";
  for (size_t i = 0; i < sweep.aborted.size(); ++i) {
    result += i > 0 ? ",{\"request_id\":" : "{\"request_id\":";
    json::append_quoted(result, sweep.aborted[i].first);
    result += ",\"output_token_count\":";
    openai::append_int(result, sweep.aborted[i].second);
    result += '}';
  }
  result += "],\"not_found\":[";
  bool first = true;
  for (const auto& id : sweep.ids) {
    if (sweep.wanted.at(id)) continue;
    if (!first) result += ',';
    json::append_quoted(result, id);
    first = false;
  }
  return result + "]}";
}

http::Response sweep_answer(Shared& shared, const AbortSweep& sweep) {
  switch (sweep.answered) {
    case AbortSweep::Form::kReset:
      return {200, "", "Scheduler Reset Successfully", {}, false};  // the original sends no content type
    case AbortSweep::Form::kScheduler:
      if (sweep.unsupported)
        return scheduler_answer(400, "This scheduler doesn't support the `update_config()` method.", "400");
      return scheduler_answer(200, "Scheduler updated successfully", "0");
    case AbortSweep::Form::kAbort:
      break;
  }
  return http::json_response(200, envelope(shared, "success", {}, abort_result(sweep)));
}

}  // namespace

std::string Shared::random_hex() {
  const uint64_t number = serial.fetch_add(1, std::memory_order_relaxed);
  const Hash128 hash = siphash128(key, &number, sizeof number);
  return fmt::format("{:016x}{:016x}", hash.lo, hash.hi);
}

void Shared::post(int worker, Message message) { workers[static_cast<size_t>(worker)]->post(std::move(message)); }
void Shared::post_control(int worker, Message message) {
  workers[static_cast<size_t>(worker)]->post_control(std::move(message));
}

void Worker::finish_sweep(AbortSweep& sweep) {
  shared_.post_control(sweep.reply.worker, Reply{sweep.reply, sweep_answer(shared_, sweep), {}});
}

http::Response answer_simple(Shared& shared, RouteId route, std::string_view rest) {
  switch (route) {
    case RouteId::kHealth:
    case RouteId::kPing:
      return health(shared);
    case RouteId::kLoad:
      return http::json_response(200, load_json());
    case RouteId::kModels:
    case RouteId::kModel:
      if (!shared.healthy()) return {304, "", "", "", false};
      if (route == RouteId::kModel) return one_model(shared, rest);
      return http::json_response(200, "{\"object\":\"list\",\"data\":[" + model_json(shared) + "]}");
    case RouteId::kOpenApi:
      return http::json_response(200,
                                 openapi_json(shared.config.version, shared.auth.required(), shared.metrics_on_main));
    case RouteId::kVersion: {
      std::string body = "{\"version\":";
      json::append_quoted(body, shared.config.version);
      return http::json_response(200, body + "}");
    }
    case RouteId::kConfigInfo:
      return http::json_response(200, shared.config.config_info);
    case RouteId::kMetrics: {
      content::MediaStats media;
      if (shared.content.media != nullptr) media = shared.content.media->stats();
      http::Response response =
          http::text_response(200, shared.metrics.text(shared.engine.stats(), shared.slots.waiting(),
                                                       shared.content.media != nullptr ? &media : nullptr));
      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
      return response;
    }
    case RouteId::kIsPaused:
      return http::json_response(200, envelope(shared, "success", {}, "{\"is_paused\":false}"));
    case RouteId::kEmbeddings:
    case RouteId::kReward:
    case RouteId::kChatReward:
      return openai::error_response(
          {ErrorCode::kUnsupported, "this model generates text: embeddings and rewards need a pooling model", {}});
    case RouteId::kUpdateModelWeight:
    case RouteId::kClearLoadWeight:
      return http::text_response(404, "Dynamic Load Weight Disabled.");
    case RouteId::kRearrangeExperts:
    case RouteId::kExpertStats:
    case RouteId::kCheckRedundant:
      return openai::error_response(
          {ErrorCode::kUnsupported, "expert load balancing is not available in this server", {}});
    default:
      break;  // pause, resume, sleep, wakeup, update_weights
  }
  return http::json_response(
      501, envelope(shared, "error", "this control operation is not available in this server", "null"));
}

}  // namespace tern::serve
