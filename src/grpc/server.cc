// libtern_grpc.so: one generic service that takes every method by its path.
#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>

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
  if (Host* host = log_host.load(std::memory_order_acquire)) {
    host->log(args->severity == GPR_LOG_SEVERITY_ERROR, args->message);
  }
}

std::string_view metadata(const ::grpc::ServerContextBase& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

class Server final : public serve::kserve::Transport, private ::grpc::CallbackGenericService {
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
    ::grpc::ServerBuilder builder;
    set_limits(builder);
    const bool v6 = options_.host.find(':') != std::string::npos;
    const std::string address = (v6 ? "[" + options_.host + "]" : options_.host) + ":" + std::to_string(options_.port);
    builder.AddListeningPort(address, ::grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && port_ > 0) return true;
    error = "cannot listen on " + address + " for gRPC: is another server running there?";
    return false;
  }

  int port() const override { return port_; }

  void stop() override {
    if (!server_) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
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
        {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1}};
    for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
  }

  ::grpc::ServerGenericBidiReactor* CreateReactor(::grpc::GenericCallbackServerContext* context) override {
    const Method method = method_of(context->method());
    const int key = host_.authorize(metadata(*context, "authorization"));
    if (key < 0 && method != Method::kHealthCheck) {
      return new UnaryCall(host_, method, {Code::kUnauthenticated, "Unauthorized"});
    }
    if (method != Method::kModelStreamInfer) return new UnaryCall(host_, method, {});
    auto* stream =
        new InferStream(host_, *context, options_.pause_bytes, metadata(*context, "triton_grpc_error") == "true");
    CallStatus refused;
    const uint64_t number = host_.on_stream(*stream, key, context->peer(), refused);
    if (number == 0)
      stream->refuse(refused);
    else
      stream->start(number);
    return stream;
  }

  const Options options_;
  Host& host_;
  int port_ = 0;
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
