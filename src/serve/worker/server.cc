#include "serve/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine/cpus.h"
#include "serve/net/unix_socket.h"
#include "serve/worker/kserve_front.h"
#include "serve/worker/preparations.h"
#include "serve/worker/worker.h"

namespace tern::serve {
namespace {

using namespace std::chrono_literals;

constexpr int kMaxWorkers = Dispatcher::kMaxSinks / 2;  // the rest is for sinks that are no I/O threads
// The longest wait for aborted requests. Steps take less; an engine that does not answer must not hold the end up.
constexpr double kAbortSeconds = 5.0;

int default_workers(int cores) { return std::clamp(cores / 4, 1, 8); }

// How the templates want contents; a template that writes no placeholder for pictures cannot serve them.
void probe_templates(Shared& shared) {
  const Content& content = shared.content;
  static const content::SpecialText kNone;
  const auto& special = content.tokenizer != nullptr ? content.tokenizer->special_text() : kNone;
  if (content.chat_template != nullptr) {
    shared.chat_form = prepare::probe_template(*content.chat_template, special, content.vision);
    if (content.vision != nullptr && shared.chat_form.image_type.empty()) {
      TERN_WARN("the chat template writes no placeholder for pictures; requests with pictures are answered with 400");
    }
  }
  if (content.tool_template != nullptr) {
    shared.tool_form = prepare::probe_template(*content.tool_template, special, content.vision);
  }
}

}  // namespace

Shared::Shared(const ServeConfig& c, engine::EngineClient& e, const Content& text, control::Weights* weights,
               size_t worker_count)
    : config(c),
      engine(e),
      dispatcher(e),
      content(text),
      auth(c.api_keys, c.api_keys_change),
      admin(c.admin_keys),
      control(e, weights),
      certificates(c.tls),
      cors(c.cors),
      slots(c.max_connections_to_engine),
      memory(c.http.memory_bytes),
      metrics(worker_count, c.cache_config, c.metric_labels ? c.model_id() : std::string()),
      key(random_hash_key()) {
  config.api_keys.clear(), config.admin_keys.clear();  // only digests stay
  if (content.vision == nullptr || content.media == nullptr) {
    content.vision = nullptr;
    content.media = nullptr;
  } else {
    preparations = std::make_shared<Preparations>(*this);
  }
  config.reasoning_parser = content.answers != nullptr && content.answers->reasoning() != nullptr;
  config.tool_call_parser = content.answers != nullptr && content.answers->tools() != nullptr;
  config.guided = config.guided && content.grammars != nullptr;
  config.media.images = content.vision != nullptr;
  config.media.videos = content.vision != nullptr && content.vision->takes_video;
}

Shared::~Shared() {
  if (preparations) preparations->close();
}

struct Server::Impl {
  std::unique_ptr<Shared> shared;
  net::SocketFile socket_file;
  std::unique_ptr<KserveFront> kserve;
  int port = 0, metrics_port = 0, controller_port = 0, paddlenlp_port = 0, paddlenlp_metrics_port = 0;
  std::atomic<bool> stop_now{false};
  std::mutex stop_mutex;
  bool stopped = false;
  std::atomic<bool> done{false};
};

Server::Server() : impl_(std::make_unique<Impl>()) {}
Server::~Server() { stop(0); }

int Server::port() const { return impl_->port; }
int Server::metrics_port() const { return impl_->metrics_port; }
int Server::controller_port() const { return impl_->controller_port; }
int Server::paddlenlp_port() const { return impl_->paddlenlp_port; }
int Server::paddlenlp_metrics_port() const { return impl_->paddlenlp_metrics_port; }
int Server::grpc_port() const { return impl_->kserve ? impl_->kserve->port() : 0; }
Dispatcher& Server::dispatcher() { return impl_->shared->dispatcher; }
int Server::open_requests() const { return impl_->shared->open_requests.load(); }
void Server::stop_now() { impl_->stop_now.store(true); }
void Server::replace_certificates(std::shared_ptr<const tls::Context> context) {
  impl_->shared->certificates.replace(std::move(context));
}
void Server::replace_keys(const std::vector<std::string>& keys) { impl_->shared->auth.replace(keys); }

Expected<std::unique_ptr<Server>> Server::start(const ServeConfig& config, engine::EngineClient& engine,
                                                const Content& content, kserve::Start grpc, control::Weights* weights) {
  if (config.vocab_size <= 0)
    return make_error(ErrorCode::kInvalidArgument, "the vocabulary's size is unknown", "vocab_size");
  TERN_RETURN_IF_ERROR(http::check(config.cors));
  std::vector<Listening> listeners;
  const auto listen = [&](const std::string& host, int port, PortKind kind) -> Expected<int> {
    TERN_ASSIGN_OR_RETURN(auto opened, net::listen_on(host, port));
    const int bound = opened[0].port;
    const bool secure = config.tls != nullptr && kind != PortKind::kController;  // which this machine alone reaches
    for (auto& listener : opened) listeners.push_back({std::move(listener), kind, secure});
    return bound;
  };
  std::unique_ptr<Server> server(new Server());
  Impl& impl = *server->impl_;
  if (!config.uds.empty()) {
    TERN_ASSIGN_OR_RETURN(auto opened, net::listen_unix(config.uds));
    listeners.push_back({std::move(opened.listener), PortKind::kMain, false});
    impl.socket_file = std::move(opened.file);
  } else if (config.port >= 0) {
    TERN_ASSIGN_OR_RETURN(impl.port, listen(config.host, config.port, PortKind::kMain));
  }
  const bool own_metrics = config.metrics_port && *config.metrics_port != config.port;
  if (own_metrics) {
    TERN_ASSIGN_OR_RETURN(impl.metrics_port, listen(config.host, *config.metrics_port, PortKind::kMetrics));
  }
  if (config.controller_port >= 0) {
    TERN_ASSIGN_OR_RETURN(impl.controller_port, listen("127.0.0.1", config.controller_port, PortKind::kController));
  }
  if (config.paddlenlp && config.paddlenlp->port >= 0) {
    TERN_ASSIGN_OR_RETURN(impl.paddlenlp_port, listen(config.host, config.paddlenlp->port, PortKind::kPaddleNlp));
  }
  if (config.paddlenlp && config.paddlenlp->metrics_port >= 0) {
    TERN_ASSIGN_OR_RETURN(impl.paddlenlp_metrics_port,
                          listen(config.host, config.paddlenlp->metrics_port, PortKind::kPaddleNlpMetrics));
  }
  const int cores = usable_cpus();
  const int workers = std::clamp(config.io_threads > 0 ? config.io_threads : default_workers(cores), 1, kMaxWorkers);
  const int cpu = config.cpu_threads > 0 ? config.cpu_threads : std::clamp(cores / 2, 2, 16);
  impl.shared = std::make_unique<Shared>(config, engine, content, weights, static_cast<size_t>(workers));
  Shared& shared = *impl.shared;
  if (config.asleep) {
    const auto slept = shared.control.carry_out({control::Order::kSleep, control::kWeights, {}, {}});
    if (!slept.error.empty()) {
      impl.shared.reset();  // nothing of it runs that a stop() could end
      return make_error(ErrorCode::kInternal, slept.error);
    }
  }
  probe_templates(shared);
  shared.metrics_on_main = !own_metrics;
  shared.max_connections = config.http.connections > 0 ? config.http.connections : net::connections_allowed();
  shared.pool = std::make_unique<ThreadPool>("tern-cpu", static_cast<size_t>(cpu),
                                             static_cast<size_t>(config.max_concurrency) + 1024);
  shared.control_pool = std::make_unique<ThreadPool>("tern-control", 1, 64);
  if (content.grammars != nullptr) {
    shared.grammar_pool = std::make_unique<ThreadPool>("tern-grammar", static_cast<size_t>(std::clamp(cpu / 2, 1, 4)),
                                                       static_cast<size_t>(config.max_concurrency) + 1024);
  }
  for (int i = 0; i < workers; ++i) {
    shared.workers.push_back(
        std::make_unique<Worker>(shared, i, i == 0 ? std::move(listeners) : std::vector<Listening>{}));
  }
  for (auto& worker : shared.workers) {
    [[maybe_unused]] const int sink = shared.dispatcher.add(*worker);  // its number: they are the first
    worker->start();
  }
  shared.dispatcher.start([&shared] { shared.engine_gone.store(true); });
  if (config.paddlenlp && config.paddlenlp->grpc_port >= 0) {
    if (grpc == nullptr) return make_error(ErrorCode::kInvalidArgument, "there is no transport for the gRPC port");
    TERN_ASSIGN_OR_RETURN(impl.kserve, KserveFront::start(shared, grpc));
  }
  return server;
}

void Server::stop(double drain_seconds) {
  Impl& impl = *impl_;
  std::lock_guard lock(impl.stop_mutex);
  if (impl.stopped || !impl.shared) return;
  impl.stopped = true;
  Shared& shared = *impl.shared;
  shared.draining.store(true);
  shared.post(0, CloseListeners{});
  const auto wait_open = [&](double seconds, const auto& enough) {
    const int64_t deadline = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
    while (shared.open_requests.load() > 0 && monotonic_ns() < deadline && !enough() && !shared.engine_gone.load()) {
      std::this_thread::sleep_for(5ms);
    }
  };
  wait_open(drain_seconds, [&] { return impl.stop_now.load(); });
  for (size_t i = 0; i < shared.workers.size(); ++i) shared.post(static_cast<int>(i), AbortAll{});
  // Even when it must be quick, clients get the end of their streams: what was aborted ends with the running step.
  wait_open(kAbortSeconds, [] { return false; });
  shared.pool->stop();
  shared.control_pool->stop();
  if (shared.grammar_pool) shared.grammar_pool->stop();
  for (size_t i = 0; i < shared.workers.size(); ++i) shared.post(static_cast<int>(i), Quit{});
  for (auto& worker : shared.workers) worker->join();
  if (impl.kserve) impl.kserve->stop();
  if (shared.preparations) shared.preparations->close();
  shared.dispatcher.stop();
  impl.done.store(true);
}

void Server::wait() {
  while (!impl_->done.load() && !impl_->shared->engine_gone.load()) std::this_thread::sleep_for(20ms);
}

}  // namespace tern::serve
