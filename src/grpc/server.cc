// libtern_grpc.so: one generic service that takes every method by its path.
#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "grpc/credentials.h"
#include "grpc/stream.h"
#include "grpc/unary.h"

namespace tern::transport {
namespace {

using serve::kserve::CallStatus;
using serve::kserve::Code;
using serve::kserve::Host;
using serve::kserve::Options;

// Server defaults of the original (paddlenlp-server.md 3.4).
constexpr int kKeepaliveMs = 7'200'000, kKeepaliveTimeoutMs = 20'000, kMinPingMs = 300'000, kPings = 2;

std::atomic<Host*> log_host{nullptr};

void forward_log(gpr_log_func_args* args) {
  Host* const host = log_host.load(std::memory_order_acquire);
  if (host == nullptr) return;
  const std::string_view text = args->message;
  // Anybody can make these: they are counted.
  const bool handshake = text.starts_with("Handshake failed");
  if (handshake) host->on_bad_handshake();
  host->log(args->severity == GPR_LOG_SEVERITY_ERROR && !handshake, text);
}

std::string_view metadata(const ::grpc::ServerContextBase& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

class Server final : public serve::kserve::Transport {
 public:
  Server(const Options& options, Host& host) : options_(options), host_(host) {
    log_host.store(&host_, std::memory_order_release);
  }
  ~Server() override {
    stop();
    log_host.store(nullptr, std::memory_order_release);
  }

  bool listen(std::string& error) {
    gpr_set_log_function(forward_log);
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // Debian's Abseil looks for them
    ::grpc::ServerBuilder builder;
    set_limits(builder);
    const bool v6 = options_.host.find(':') != std::string::npos;
    const std::string address = (v6 ? "[" + options_.host + "]" : options_.host) + ":" + std::to_string(options_.port);
    const auto credentials =
        options_.tls ? tls_credentials(host_, options_.clients) : ::grpc::InsecureServerCredentials();
    builder.AddListeningPort(address, credentials, &port_);
    builder.RegisterAsyncGenericService(&service_);
    for (int i = 0; i < options_.threads; ++i) {
      queues_.push_back(
          std::make_unique<CallQueue>(builder.AddCompletionQueue(), service_, [this](Call& c) { accept(c); }));
    }
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && port_ > 0) {
      for (auto& queue : queues_) queue->start();
      return true;
    }
    error = "cannot listen on " + address + " for gRPC: is another server running there?";
    return false;
  }

  int port() const override { return port_; }

  void stop() override {
    if (!server_) return;
    for (auto& queue : queues_) queue->close();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
    for (auto& queue : queues_) queue->stop();
    server_.reset();
  }

 private:
  void set_limits(::grpc::ServerBuilder& builder) const {
    builder.SetMaxReceiveMessageSize(static_cast<int>(options_.message_bytes));
    builder.SetMaxSendMessageSize(-1);
    ::grpc::ResourceQuota quota("tern");
    builder.SetResourceQuota(quota.Resize(options_.memory_bytes));
    const std::pair<const char*, int> arguments[] = {
        {GRPC_ARG_ALLOW_REUSEPORT, 0},  // a port that is taken is an error
        {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs},
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingMs},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, kPings},
        {GRPC_ARG_HTTP2_MAX_PING_STRIKES, kPings},
        {GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.streams},
        {GRPC_ARG_MAX_CONNECTION_IDLE_MS, options_.idle_seconds * 1000},
        {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options_.handshake_seconds * 1000},
        // A compressed message may be a thousand times as large as its limit: none is taken.
        {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1},
        // What nobody asks for costs time with every message.
        {GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0},
        {GRPC_ARG_ENABLE_CHANNELZ, 0}};
    for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
  }

  void accept(Call& call) {
    const ::grpc::GenericServerContext& context = call.context();
    const Method method = method_of(context.method());
    const int key = host_.authorize(metadata(context, "authorization"));
    if (key < 0 && method != Method::kHealthCheck) {
      new UnaryCall(host_, call, method, {Code::kUnauthenticated, "Unauthorized"});
    } else if (method != Method::kModelStreamInfer) {
      new UnaryCall(host_, call, method, {});
    } else {
      begin_stream(call, key);
    }
  }

  void begin_stream(Call& call, int key) {
    const ::grpc::GenericServerContext& context = call.context();
    const uint64_t number = next_stream_.fetch_add(1, std::memory_order_relaxed);
    auto* stream =
        new InferStream(number, host_, call, options_.pause_bytes, metadata(context, "triton_grpc_error") == "true");
    CallStatus refused;
    bool taken = false;
    try {
      taken = host_.on_stream(number, *stream, key, context.peer(), refused);
    } catch (const std::bad_alloc&) {
      refused = {Code::kResourceExhausted, {}};
    }
    if (taken)
      stream->start();
    else
      stream->refuse(refused);
  }

  const Options options_;
  Host& host_;
  int port_ = 0;
  std::atomic<uint64_t> next_stream_{1};
  ::grpc::AsyncGenericService service_;
  std::vector<std::unique_ptr<CallQueue>> queues_;
  std::unique_ptr<::grpc::Server> server_;
};

}  // namespace
}  // namespace tern::transport

extern "C" __attribute__((visibility("default"))) tern::serve::kserve::Transport* tern_grpc_start(
    uint64_t interface, const tern::serve::kserve::Options& options, tern::serve::kserve::Host& host,
    std::string& error) {
  if (interface != tern::serve::kserve::interface_number()) {
    error = "libtern_grpc.so belongs to another build of this program: install both from one";
    return nullptr;
  }
  auto server = std::make_unique<tern::transport::Server>(options, host);
  return server->listen(error) ? server.release() : nullptr;
}
