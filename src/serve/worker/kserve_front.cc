#include "serve/worker/kserve_front.h"

#include <fmt/format.h>

#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "serve/kserve/infer.h"
#include "serve/native/errors.h"
#include "serve/openai/json/error.h"
#include "serve/worker/job_steps.h"
#include "serve/worker/worker.h"

namespace tern::serve {
namespace {

constexpr std::string_view kShuttingDown = "GRPC server is shutting down and has stopped accepting new requests.";
constexpr std::string_view kBusy = "the server has no memory for this request now; send it again";

kserve::ClientCertificates clients_of(const tls::Context& context) {
  switch (context.pems().clients) {
    case tls::ClientCertificates::kNone:
      return kserve::ClientCertificates::kNone;
    case tls::ClientCertificates::kOptional:
      return kserve::ClientCertificates::kOptional;
    case tls::ClientCertificates::kRequired:
      break;
  }
  return kserve::ClientCertificates::kRequired;
}

kserve::Options options_of(const Shared& shared) {
  const ServeConfig& config = shared.config;
  return {.host = config.host,
          .port = config.paddlenlp->grpc_port,
          .message_bytes = config.http.grpc_message_bytes,
          .memory_bytes = std::max(config.http.memory_bytes, 2 * config.http.grpc_message_bytes),
          .pause_bytes = config.http.write_buffer_bytes,
          .handshake_seconds = std::max(1, static_cast<int>(config.http.header_timeout)),
          .streams = config.max_concurrency,
          .threads = static_cast<int>(shared.workers.size()),
          .tls = config.tls != nullptr,
          .clients = config.tls != nullptr ? clients_of(*config.tls) : kserve::ClientCertificates::kNone};
}

}  // namespace

Expected<std::unique_ptr<KserveFront>> KserveFront::start(Shared& shared, kserve::Start start) {
  std::unique_ptr<KserveFront> front(new KserveFront(shared));
  std::string error;
  front->transport_.reset(start(kserve::interface_number(), options_of(shared), *front, error));
  if (!front->transport_) return make_error(ErrorCode::kIo, error, "SERVICE_GRPC_PORT");
  return front;
}

KserveFront::~KserveFront() { stop(); }

void KserveFront::stop() {
  if (stopped_ || !transport_) return;
  stopped_ = true;
  std::vector<kserve::StreamRef> open;
  {
    std::lock_guard lock(mutex_);
    for (auto& [number, stream] : streams_) open.emplace_back(*stream.stream);
  }
  for (auto& stream : open) stream->finish({kserve::Code::kUnavailable, std::string(kShuttingDown)});
  open.clear();
  transport_->stop();
  std::lock_guard lock(mutex_);
  streams_.clear();
}

int KserveFront::authorize(std::string_view authorization) {
  return shared_.auth.required() ? shared_.auth.check(authorization).value_or(-1) : 0;
}

kserve::CallStatus KserveFront::check_model(std::string_view model, std::string_view version) {
  return kserve::check_model(model, version, shared_.ready());
}

bool KserveFront::on_stream(uint64_t number, kserve::Stream& stream, int key_index, std::string_view peer,
                            kserve::CallStatus& status) {
  const net::Peer from = net::peer_of(kserve::address_of(peer), shared_.config.http.trusted, shared_.key);
  const bool several = shared_.auth.several();
  OpenStream open{kserve::StreamRef(stream),
                  key_index,
                  several ? static_cast<uint64_t>(key_index) + 1 : from.owner,
                  several || from.limited,
                  {}};
  std::lock_guard lock(mutex_);
  const size_t most = shared_.config.http.connections_per_address;
  if (most > 0 && from.limited) open.place = shared_.addresses.enter(from.owner, most);
  const bool crowded = streams_.size() >= static_cast<size_t>(shared_.config.max_concurrency);
  if (crowded || (most > 0 && from.limited && !open.place)) {
    status = {kserve::Code::kResourceExhausted, "too many streams are open"};
    return false;
  }
  streams_.emplace(number, std::move(open));
  return true;
}

void KserveFront::on_request(uint64_t stream, kserve::Stream& from, const kserve::InferRequest& r) {
  const uint64_t call = kserve::kCallBit | next_call_.fetch_add(1, std::memory_order_relaxed);
  try {
    if (stopping()) return from.fail(call, r.id, {kserve::Code::kUnavailable, std::string(kShuttingDown)});
    const auto read = kserve::read_infer(r, ready(), {.name_bytes = shared_.config.limits.id_bytes});
    if (const auto* wrong = std::get_if<kserve::CallStatus>(&read)) return from.fail(call, r.id, *wrong);
    submit(stream, from, call, r.id, std::get<std::string_view>(read));
  } catch (const std::bad_alloc&) {
    from.fail(call, {}, {kserve::Code::kUnavailable, std::string(kBusy)});
  }
}

void KserveFront::submit(uint64_t stream, kserve::Stream& from, uint64_t call, std::string_view id,
                         std::string_view payload) {
  Asker asker;
  {
    std::lock_guard lock(mutex_);
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;  // it has been closed meanwhile
    asker = {it->second.key_index, it->second.owner, it->second.shares};
  }
  if (shared_.auth.required() && !shared_.auth.holds(asker.key_index)) {  // it has been taken back since
    return from.fail(call, id, {kserve::Code::kUnauthenticated, "Unauthorized"});
  }
  Job job;
  job.ticket = Ticket::take(shared_.open_requests, shared_.config.max_concurrency);
  if (!job.ticket) {
    const std::string object = native::error_object({native::kRefused, "too many requests are open", {}}, false);
    from.send(call, id, object, true);
    return;
  }
  job.memory = MemoryBudget::Lease(shared_.memory, asker.shares ? asker.owner : 0);
  if (!job.memory.resize(payload.size())) {
    return from.fail(call, id, {kserve::Code::kUnavailable, std::string(kBusy)});
  }
  job.to = {worker_of(stream), call, 0};
  job.body = payload;
  job.key_index = asker.key_index;
  job.owner = asker.owner;
  job.arrival_ns = monotonic_ns();
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  kserve::NewCall fresh{.call = call,
                        .stream = stream,
                        .from = kserve::StreamRef(from),
                        .id = std::string(id),
                        .key_index = asker.key_index,
                        .owner = asker.owner,
                        .cancelled = job.cancelled};
  shared_.post_control(job.to.worker, std::move(fresh));
  const ReplyTo to = job.to;
  const bool taken = shared_.pool->try_submit([&shared = shared_, job = std::move(job)]() mutable {
    run_guarded(shared, job.to, [&] { answer_kserve(shared, job); });
  });
  if (!taken) shared_.post_control(to.worker, Reply{to, openai::busy_response("the server is overloaded"), {}});
}

void KserveFront::on_room(uint64_t stream, uint64_t call) { shared_.post_control(worker_of(stream), CallRoom{call}); }

void KserveFront::on_closed(uint64_t stream) {
  {
    std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  shared_.post_control(worker_of(stream), StreamClosed{stream});
}

bool KserveFront::new_certificates(kserve::Certificates& certificates) {
  std::shared_ptr<const tls::Context> now = shared_.certificates.get();
  if (now == shown_) return false;
  const tls::ServerPems& pems = now->pems();
  certificates = {.chain = pems.certificate, .key = pems.key, .client_ca = pems.client_ca};
  shown_ = std::move(now);
  return true;
}

void KserveFront::on_bad_handshake() { shared_.metrics.shard(0).add(Count::kBadHandshakes); }

void KserveFront::log(bool error, std::string_view line) {
  if (error)
    TERN_WARN("gRPC: {}", line);
  else
    TERN_DEBUG("gRPC: {}", line);
}

}  // namespace tern::serve
