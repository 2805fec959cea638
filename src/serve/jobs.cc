// Work of the CPU pool: bodies to requests, and long answers to bytes.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "json/json.h"
#include "serve/openai/error.h"
#include "serve/openai/fields.h"
#include "serve/openai/prepare.h"
#include "serve/shared.h"
#include "serve/text_api.h"
#include "serve/worker.h"

namespace tern::serve {
namespace {

bool is_json(std::string_view type) {
  if (type.empty()) return true;
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  std::string lower(type);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "application/json" || (lower.starts_with("application/") && lower.ends_with("+json"));
}

Expected<json::Value> parse_body(const Shared& shared, const Job& job) {
  // Other types are what a foreign web page can send without asking first.
  if (!is_json(job.content_type)) return openai::invalid_value("Content-Type must be application/json", "body");
  auto value = json::parse(job.body, {shared.config.http.body_bytes, shared.config.http.json_depth});
  if (!value.ok()) return openai::invalid_value("JSON decode error: " + value.error().message, "body");
  return value;
}

void log_received(const Shared& shared, const Job& job, const openai::Generation& generation) {
  if (!shared.config.log_requests) return;
  const auto& ask = generation.ask();
  int64_t prompt = 0;
  for (const auto& p : generation.prompts()) prompt += static_cast<int64_t>(p.ids.size());
  if (shared.config.log_requests_level < 2) {
    TERN_LOG(LogChannel::kApiServer, LogLevel::kInfo,
             "Receive request {}: prompt tokens {}, n {}, stream {}, max_tokens {}", generation.id(), prompt, ask.n,
             ask.stream, ask.max_tokens.value_or(-1));
    return;
  }
  std::string body;  // quoted: a body cannot forge further lines
  json::append_quoted(body, std::string_view(job.body).substr(0, shared.config.log_max_len));
  TERN_LOG(LogChannel::kApiServer, LogLevel::kInfo, "Receive request {}: prompt tokens {}, body {}", generation.id(),
           prompt, body);
}

openai::PrepareInput prepare_input(Shared& shared, const Job& job) {
  openai::PrepareInput input;
  input.config = &shared.config;
  input.content = shared.content;
  input.arrival_ns = job.arrival_ns;
  input.id_hex = shared.random_hex();
  input.random = siphash128(shared.key, input.id_hex.data(), input.id_hex.size()).lo;
  if (shared.auth.several()) {  // one key's prompts must not show in the timing of another's
    const std::string name = "cache salt " + std::to_string(job.key_index);
    const Hash128 salt = siphash128(shared.key, name.data(), name.size());
    input.salted = true;
    input.salt[0] = salt.lo;
    input.salt[1] = salt.hi;
  }
  return input;
}

void run_generate(Shared& shared, Job& job, json::Value body) {
  const bool chat = job.route == RouteId::kChat;
  auto ask = chat ? openai::parse_chat(std::move(body), shared.config)
                  : openai::parse_completion(std::move(body), shared.config);
  if (!ask.ok())
    return shared.post(job.to.worker, Answer{job.to, openai::error_response(ask.error()), std::move(job.ticket)});
  auto generation = openai::prepare(*std::move(ask), prepare_input(shared, job));
  if (!generation.ok()) {
    return shared.post(job.to.worker,
                       Answer{job.to, openai::error_response(generation.error(), shared.config.original_error_status),
                              std::move(job.ticket)});
  }
  Ready ready{job.to, *std::move(generation), {}, std::move(job.ticket)};
  if (!shared.ids.insert(ready.generation->id())) {
    const Error taken = openai::invalid_value("duplicated request_id " + ready.generation->id(), "request_id");
    return shared.post(job.to.worker, Answer{job.to, openai::error_response(taken, shared.config.original_error_status),
                                             std::move(ready.ticket)});
  }
  log_received(shared, job, *ready.generation);
  for (const auto& child : ready.generation->children())
    ready.requests.push_back(ready.generation->engine_request(child));
  shared.post(job.to.worker, std::move(ready));
}

void run_abort(Shared& shared, Job& job, const json::Value& body) {
  auto sweep = std::make_unique<AbortSweep>();
  sweep->reply = job.to;
  const auto refuse = [&](std::string text, std::string param) {
    shared.post(job.to.worker,
                Answer{job.to, openai::error_response(openai::invalid_value(std::move(text), std::move(param))), {}});
  };
  if (!body.is_object()) return refuse("Input should be a valid dictionary", "body");
  openai::Fields f(body.get_object());
  bool reallocate = false;
  if (job.route == RouteId::kScheduler) {
    f.boolean("reset", sweep->all);
    f.boolean("reallocate_shard", reallocate);
    if (reallocate || f.find("load_shards_num") != nullptr)
      f.fail("this server has no shared scheduler", "load_shards_num");
  } else {
    f.boolean("abort_all", sweep->all);
    f.strings("req_ids", sweep->ids, 4096);
  }
  if (!f.ok()) return refuse(f.error()->message, f.error()->param);
  sweep->controller = job.route == RouteId::kScheduler;
  if (!sweep->controller && !sweep->all && sweep->ids.empty())
    return refuse("abort_all or req_ids is needed", "req_ids");
  shared.post(job.to.worker, std::move(sweep));
}

}  // namespace

void run_job(Shared& shared, Job job) {
  if (job.route == RouteId::kResetScheduler) {
    auto sweep = std::make_unique<AbortSweep>();
    sweep->reply = job.to;
    sweep->all = sweep->controller = true;
    return shared.post(job.to.worker, std::move(sweep));
  }
  auto body = parse_body(shared, job);
  if (!body.ok()) {
    return shared.post(job.to.worker, Answer{job.to, openai::error_response(body.error()), std::move(job.ticket)});
  }
  switch (job.route) {
    case RouteId::kChat:
    case RouteId::kCompletions:
      return run_generate(shared, job, *std::move(body));
    case RouteId::kTokenize:
      return shared.post(job.to.worker, Answer{job.to, tokenize(*body, prepare_input(shared, job)), {}});
    case RouteId::kDetokenize:
      return shared.post(job.to.worker, Answer{job.to, detokenize(*body, prepare_input(shared, job)), {}});
    default:
      return run_abort(shared, job, *body);
  }
}

void write_body(Shared& shared, ReplyTo to, std::unique_ptr<openai::Generation> generation, Ticket ticket) {
  struct Work {
    std::unique_ptr<openai::Generation> generation;
    Ticket ticket;
  };
  auto* raw = new Work{std::move(generation), std::move(ticket)};  // owned by the task below
  const bool taken = shared.pool->try_submit([&shared, to, raw] {
    const std::unique_ptr<Work> work(raw);
    shared.post(to.worker, Answer{to, http::json_response(200, work->generation->body()), std::move(work->ticket)});
  });
  if (taken) return;
  const std::unique_ptr<Work> work(raw);  // the pool is full: this thread does it
  shared.post_control(to.worker,
                      Answer{to, http::json_response(200, work->generation->body()), std::move(work->ticket)});
}

}  // namespace tern::serve
