// Work of the CPU pool for the PaddleNLP front: checks in the order of paddlenlp-server.md 2.3, the first failure wins.
#include <fmt/format.h>

#include <algorithm>

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

bool take_place(Shared& shared, Job& job, bool native, bool stream) {
  const PaddleNlpConfig& front = *shared.config.paddlenlp;
  if (job.ticket.also(shared.paddlenlp_open, front.batch_size + front.cached_tasks)) return true;
  const std::string message = fmt::format(
      "cached task num ({}) exceeds the limit ({})",
      std::max(shared.paddlenlp_open.load(std::memory_order_relaxed) - front.batch_size, front.cached_tasks),
      front.cached_tasks);
  if (native)
    refuse_native(shared, job, {native::kRefused, message, std::nullopt}, stream);
  else
    answer(shared, job, openai::error_response(make_error(ErrorCode::kResourceExhausted, message)));
  return false;
}

void answer_native(Shared& shared, Job& job, json::Value body) {
  json::Object& fields = body.get_object();
  native::Faults faults;
  native::check_types(fields, faults);
  if (!faults.empty()) return answer(shared, job, faults.response());
  const json::Value* wants_stream = json::find(fields, "stream");
  const bool stream = wants_stream != nullptr && wants_stream->get_bool();
  if (!take_place(shared, job, true, stream)) return;
  const auto messages = native::check_fields(fields);
  if (!messages.empty()) {
    return refuse_native(shared, job, {native::kRefused, native::python_list(messages), id_of(fields)}, stream);
  }
  native::NativeRequest request = native::take_request(fields);
  prepare::PrepareInput input = prepare_input(shared, job);
  if (!request.req_id || request.req_id->empty()) {
    const std::string_view h = input.id_hex;
    request.req_id = fmt::format("{}-{}-{}-{}-{}", h.substr(0, 8), h.substr(8, 4), h.substr(12, 4), h.substr(16, 4),
                                 h.substr(20, 12));
  }
  const std::string id = *request.req_id;
  if (id.size() > shared.config.limits.id_bytes) {
    return refuse_native(
        shared, job, native::unexpected(fmt::format("req_id has more than {} bytes", shared.config.limits.id_bytes)),
        stream);
  }
  IdLease lease = IdLease::take(shared.ids, id);
  if (!lease) {
    return refuse_native(
        shared, job,
        {native::kRefused,
         fmt::format("The req_id {} already exists in the current batch, the current request will be ignored.", id),
         id},
        stream);
  }
  native::Prepared prepared = native::prepare(std::move(request), input);
  if (const auto* refusal = std::get_if<native::Refusal>(&prepared)) {
    lease = IdLease();  // free before the answer leaves: the client may ask again at once
    return refuse_native(shared, job, *refusal, stream);
  }
  auto& generation = std::get<std::unique_ptr<Generation>>(prepared);
  log_received(shared.config, *generation, job.logged);
  post_ready(shared, job.to, std::move(job.ticket), std::move(job.memory), std::move(generation));
  lease.keep();  // the worker's
}

}  // namespace tern::serve
