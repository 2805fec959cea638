// Answers that need no work beyond reading a few values.
#include <fmt/format.h>

#include "base/clock.h"
#include "json/json.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/writers.h"
#include "serve/worker/handlers.h"
#include "serve/worker/worker.h"

namespace tern::serve {
namespace {

std::string model_json(Shared& shared) {
  const ServeConfig& config = shared.config;
  const auto now = static_cast<int64_t>(wall_seconds());
  std::string out = "{\"id\":";
  json::append_quoted(out, config.model_id());
  out += fmt::format(",\"object\":\"model\",\"created\":{},\"owned_by\":\"FastDeploy\",\"root\":", now);
  json::append_quoted(out, config.model_path);
  return out + fmt::format(
                   ",\"parent\":null,\"max_model_len\":{},\"permission\":[{{\"id\":\"modelperm-{}\",\"object\":"
                   "\"model_permission\",\"created\":{},\"allow_create_engine\":false,\"allow_sampling\":true,"
                   "\"allow_logprobs\":true,\"allow_search_indices\":false,\"allow_view\":true,"
                   "\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,\"is_blocking\":false}}]}}",
                   config.max_model_len, shared.random_hex(), now);
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

}  // namespace

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

std::string Shared::random_hex() {
  const uint64_t number = serial.fetch_add(1, std::memory_order_relaxed);
  const Hash128 hash = siphash128(key, &number, sizeof number);
  return fmt::format("{:016x}{:016x}", hash.lo, hash.hi);
}

void Shared::post(int worker, Message message) { workers[static_cast<size_t>(worker)]->post(std::move(message)); }
void Shared::post_control(int worker, Message message) {
  workers[static_cast<size_t>(worker)]->post_control(std::move(message));
}

http::Response answer_health(Shared& shared, std::string_view) {
  return shared.healthy() ? http::text_response(200, "") : http::text_response(404, "Worker Service Not Healthy");
}

http::Response answer_load(Shared&, std::string_view) { return http::json_response(200, load_json()); }

http::Response answer_models(Shared& shared, std::string_view) {
  if (!shared.healthy()) return {304, "", "", "", false};
  return http::json_response(200, "{\"object\":\"list\",\"data\":[" + model_json(shared) + "]}");
}

http::Response answer_model(Shared& shared, std::string_view id) {
  if (!shared.healthy()) return {304, "", "", "", false};
  if (id == shared.config.model_id()) return http::json_response(200, model_json(shared));
  std::string body = "{\"error\":{\"message\":";
  json::append_quoted(body, fmt::format("The model `{}` does not exist.", id));
  return http::json_response(
      404, body + ",\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}");
}

http::Response answer_openapi(Shared& shared, std::string_view) {
  return http::json_response(200, openapi_json(shared.config.version, shared.auth.required(), shared.metrics_on_main));
}

http::Response answer_version(Shared& shared, std::string_view) {
  std::string body = "{\"version\":";
  json::append_quoted(body, shared.config.version);
  return http::json_response(200, body + "}");
}

http::Response answer_config_info(Shared& shared, std::string_view) {
  return http::json_response(200, shared.config.config_info);
}

http::Response answer_null(Shared&, std::string_view) { return http::json_response(200, "null"); }

http::Response answer_paddlenlp_metrics(Shared& shared, std::string_view) {
  const int host_blocks = shared.config.paddlenlp->host_blocks * static_cast<int>(shared.engine.parts().size());
  http::Response response = http::text_response(
      200, shared.metrics.paddlenlp_text(shared.engine.stats(), shared.slots.waiting(), host_blocks));
  if (shared.config.gpus) append_gpus(response.body, shared.config.gpus());
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return response;
}

http::Response answer_metrics(Shared& shared, std::string_view) {
  content::MediaStats media;
  if (shared.content.media != nullptr) media = shared.content.media->stats();
  http::Response response = http::text_response(
      200, shared.metrics.text(shared.engine.stats(), shared.slots.waiting(),
                               shared.content.media != nullptr ? &media : nullptr, shared.engine.parts()));
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return response;
}

// What the page cannot learn from the protocol: which of its parts this server can serve.
http::Response answer_page_config(Shared& shared, std::string_view) {
  const ServeConfig& config = shared.config;
  std::string body = "{\"version\":";
  json::append_quoted(body, config.version);
  body += ",\"model\":";
  json::append_quoted(body, config.model_id());
  body += ",\"architecture\":";
  json::append_quoted(body, shared.content.vision != nullptr ? shared.content.vision->architecture : "");
  const bool images = config.media.images && !shared.chat_form.image_type.empty();
  return http::json_response(
      200, fmt::format("{},\"max_model_len\":{},\"images\":{},\"max_body_bytes\":{},\"reasoning\":{},\"tools\":{},"
                       "\"metrics\":{}}}",
                       body, config.max_model_len, images ? config.media.max_images : 0, config.http.body_bytes,
                       config.reasoning_parser, config.tool_call_parser, shared.metrics_on_main));
}

http::Response answer_is_paused(Shared& shared, std::string_view) {
  return http::json_response(200, envelope(shared, "success", {}, "{\"is_paused\":false}"));
}

http::Response refuse_pooling(Shared&, std::string_view) {
  return openai::error_response(
      {ErrorCode::kUnsupported, "this model generates text: embeddings and rewards need a pooling model", {}});
}

http::Response refuse_weights(Shared&, std::string_view) {
  return http::text_response(404, "Dynamic Load Weight Disabled.");
}

http::Response refuse_experts(Shared&, std::string_view) {
  return openai::error_response({ErrorCode::kUnsupported, "expert load balancing is not available in this server", {}});
}

http::Response refuse_control(Shared& shared, std::string_view) {
  return http::json_response(
      501, envelope(shared, "error", "this control operation is not available in this server", "null"));
}

}  // namespace tern::serve
