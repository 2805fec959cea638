// Work of the CPU pool for the PaddleNLP front: checks in the order of paddlenlp-server.md 2.3, the first failure wins.
#include <fmt/format.h>

#include <algorithm>

#include "serve/native/payload.h"
#include "serve/native/prepare.h"
#include "serve/openai/json/error.h"
#include "serve/report/request_log.h"
#include "serve/worker/job_steps.h"
#include "serve/worker/worker.h"

namespace tern::serve {
namespace {

void answer(Shared& shared, Job& job, http::Response response) {
  shared.post(job.to.worker, Reply{job.to, std::move(response), std::move(job.ticket)});
}

void refuse_native(Shared& shared, Job& job, const native::Refusal& refusal, bool stream) {
  log_refused(shared.config, make_error(ErrorCode::kInvalidArgument, refusal.message));
  answer(shared, job, native::refuse(refusal, stream));
}

std::optional<std::string> id_of(const json::Object& body) {
  const json::Value* id = json::find(body, "req_id");
  if (id == nullptr) return std::nullopt;
  return std::string(id->get_string());
}

}  // namespace

http::Response paddlenlp_refusal(const std::string& message, bool engine_gone) {
  if (!engine_gone) return native::refuse({native::kRefused, message, std::nullopt}, false);
  native::Refusal refusal = native::refusal_of(make_error(ErrorCode::kUnavailable, message), "");
  refusal.req_id.reset();
  return native::refuse(refusal, false);
}

std::optional<std::string> take_place(Shared& shared, Job& job) {
  const PaddleNlpConfig& front = *shared.config.paddlenlp;
  if (job.ticket.also(shared.paddlenlp_open, front.batch_size + front.cached_tasks)) return std::nullopt;
  return fmt::format(
      "cached task num ({}) exceeds the limit ({})",
      std::max(shared.paddlenlp_open.load(std::memory_order_relaxed) - front.batch_size, front.cached_tasks),
      front.cached_tasks);
}

namespace {

// Steps 4 to 9: the id, then everything that needs the tokenizer. A refusal is the request's answer; its id is free
// again.
std::optional<native::Refusal> start_native(Shared& shared, Job& job, native::NativeRequest request) {
  prepare::PrepareInput input = prepare_input(shared, job);
  if (!request.req_id || (request.req_id->empty() && !request.grpc)) {
    const std::string_view h = input.id_hex;
    request.req_id = fmt::format("{}-{}-{}-{}-{}", h.substr(0, 8), h.substr(8, 4), h.substr(12, 4), h.substr(16, 4),
                                 h.substr(20, 12));
  }
  const std::string id = *request.req_id;
  if (id.size() > shared.config.limits.id_bytes) {
    return native::unexpected(fmt::format("req_id has more than {} bytes", shared.config.limits.id_bytes));
  }
  IdLease lease = IdLease::take(shared.ids, id);
  if (!lease) {
    return native::Refusal{
        native::kRefused,
        fmt::format("The req_id {} already exists in the current batch, the current request will be ignored.", id), id};
  }
  native::Prepared prepared = native::prepare(std::move(request), input);
  if (auto* refusal = std::get_if<native::Refusal>(&prepared)) return std::move(*refusal);
  auto& generation = std::get<std::unique_ptr<Generation>>(prepared);
  log_received(shared.config, *generation, job.logged);
  post_ready(shared, job.to, std::move(job.ticket), std::move(job.memory), std::move(generation));
  lease.keep();  // the worker's
  return std::nullopt;
}

}  // namespace

void answer_native(Shared& shared, Job& job, json::Value body) {
  json::Object& fields = body.get_object();
  native::Faults faults;
  native::check_types(fields, faults);
  if (!faults.empty()) return answer(shared, job, faults.response());
  const json::Value* wants_stream = json::find(fields, "stream");
  const bool stream = wants_stream != nullptr && wants_stream->get_bool();
  const auto refuse = [&](const native::Refusal& refusal) { refuse_native(shared, job, refusal, stream); };
  if (const auto full = take_place(shared, job)) return refuse({native::kRefused, *full, std::nullopt});
  const auto messages = native::check_fields(fields);
  if (!messages.empty()) return refuse({native::kRefused, native::python_list(messages), id_of(fields)});
  if (const auto refusal = start_native(shared, job, native::take_request(fields))) refuse(*refusal);
}

void answer_kserve(Shared& shared, Job& job) {
  if (job.cancelled->load(std::memory_order_relaxed)) return;  // nobody waits for the answer
  auto body = parse_body(shared, job, shared.config.http.grpc_message_bytes);
  if (!body.ok()) {
    log_refused(shared.config, body.error());
    return answer(shared, job, http::text_response(400, body.error().message));
  }
  const auto refuse = [&](const native::Refusal& refusal) {
    log_refused(shared.config, make_error(ErrorCode::kInvalidArgument, refusal.message));
    answer(shared, job, http::json_response(200, native::error_object(refusal, false)));
  };
  auto payload = native::read_payload(*std::move(body));
  if (const auto* refusal = std::get_if<native::Refusal>(&payload)) return refuse(*refusal);
  auto& asked = std::get<native::Payload>(payload);
  if (const auto full = take_place(shared, job)) return refuse({native::kRefused, *full, std::nullopt});
  auto request = native::take_payload(asked);
  if (const auto* refusal = std::get_if<native::Refusal>(&request)) return refuse(*refusal);
  if (const auto refusal = start_native(shared, job, std::get<native::NativeRequest>(std::move(request)))) {
    refuse(*refusal);
  }
}

}  // namespace tern::serve
