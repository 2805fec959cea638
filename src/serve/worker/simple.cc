// Answers that need no work beyond reading a few values.
#include <fmt/format.h>

#include "base/clock.h"
#include "json/json.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/writers.h"
#include "serve/worker/handlers.h"
#include "serve/worker/job_steps.h"
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

namespace {

// Answers of the two old weight routes (fastdeploy.md 2.5).
http::Response weight_answer(int code, std::string_view text) {
  std::string quoted;
  json::append_quoted(quoted, text);
  return http::json_response(
      code,
      fmt::format("{{\"code\":{},\"message\":{},\"msg\":{},\"dp_rank\":0,\"local_dp_rank\":0}}", code, quoted, quoted));
}

bool is_old(control::Order order) { return order == control::Order::kClear || order == control::Order::kReload; }

http::Response control_answer(Shared& shared, const control::Ask& ask, const control::Controller::Outcome& outcome) {
  const bool done = outcome.error.empty();
  if (is_old(ask.order)) {
    const std::string_view what = ask.order == control::Order::kClear ? "clear" : "update";
    return weight_answer(done ? 200 : outcome.code,
                         done ? fmt::format("{} model weight successfully", what) : outcome.error);
  }
  std::string result = "null";
  if (done && ask.order == control::Order::kUpdate) {
    result = "{\"version\":";
    json::append_quoted(result, ask.version);
    result += '}';
  }
  return http::json_response(done ? 200 : 500, envelope(shared, done ? "success" : "error", outcome.error, result));
}

// The old routes say so where the other of them, or the same, is at work.
std::optional<http::Response> refuse_old(Shared& shared, control::Order order) {
  if (!shared.config.dynamic_weights) return http::text_response(404, "Dynamic Load Weight Disabled.");
  const auto busy = shared.control.busy();
  if (!busy) return std::nullopt;
  if (*busy == order) return weight_answer(400, "this is being done already");
  return weight_answer(403, "another order is being carried out");
}

Status read_ask(Shared& shared, Job& job, control::Ask& ask) {
  if (ask.order == control::Order::kSleep || ask.order == control::Order::kWakeUp) {
    return control::read_tags(job.query, ask);
  }
  if (ask.order == control::Order::kReload) ask.from.folder = control::WeightsFrom::Folder::kOwn;
  if (ask.order != control::Order::kUpdate) return {};
  if (job.body.empty()) job.body = "{}";
  TERN_ASSIGN_OR_RETURN(const json::Value body, parse_body(shared, job, shared.config.http.body_bytes));
  return control::read_update(body, ask);
}

}  // namespace

void carry_out(Shared& shared, Job& job, control::Order order) {
  const auto reply = [&](http::Response response) {
    shared.post(job.to.worker, Reply{job.to, std::move(response), {}});
  };
  control::Ask ask;
  ask.order = order;
  if (const Status read = read_ask(shared, job, ask); !read.ok()) {
    return reply(http::json_response(400, envelope(shared, "error", read.error().message, "null")));
  }
  if (is_old(order)) {
    if (auto refused = refuse_old(shared, order)) return reply(*std::move(refused));
  }
  const bool taken = shared.control_pool->try_submit([&shared, to = job.to, ask = std::move(ask)] {
    run_guarded(shared, to, [&] {
      http::Response answer = control_answer(shared, ask, shared.control.carry_out(ask));
      shared.post(to.worker, Reply{to, std::move(answer), {}});
    });
  });
  if (!taken) reply(http::json_response(500, envelope(shared, "error", "too many orders wait", "null")));
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
  if (shared.control.shut()) return {304, "", "", "", false};
  return shared.healthy() ? http::text_response(200, "") : http::text_response(404, "Worker Service Not Healthy");
}

http::Response answer_load(Shared&, std::string_view) { return http::json_response(200, load_json()); }

http::Response answer_models(Shared& shared, std::string_view) {
  if (!shared.ready()) return {304, "", "", "", false};
  return http::json_response(200, "{\"object\":\"list\",\"data\":[" + model_json(shared) + "]}");
}

http::Response answer_model(Shared& shared, std::string_view id) {
  if (!shared.ready()) return {304, "", "", "", false};
  if (id == shared.config.model_id()) return http::json_response(200, model_json(shared));
  std::string body = "{\"error\":{\"message\":";
  json::append_quoted(body, fmt::format("The model `{}` does not exist.", id));
  return http::json_response(
      404, body + ",\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}");
}

http::Response answer_openapi(Shared& shared, std::string_view) {
  return http::json_response(200, openapi_json(shared.config.version, {shared.auth.required(), shared.admin.required()},
                                               shared.metrics_on_main));
}

http::Response answer_version(Shared& shared, std::string_view) {
  std::string body = "{\"version\":";
  json::append_quoted(body, shared.config.version);
  if (const std::string weights = shared.control.version(); !weights.empty()) {
    body += ",\"weights\":";
    json::append_quoted(body, weights);
  }
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
  const bool paused = shared.control.state().paused;
  return http::json_response(200, envelope(shared, "success", {}, fmt::format("{{\"is_paused\":{}}}", paused)));
}

http::Response refuse_experts(Shared&, std::string_view) {
  return http::json_response(400, "{\"code\":1,\"msg\":\"redundant expert is disabled\"}");
}

}  // namespace tern::serve
