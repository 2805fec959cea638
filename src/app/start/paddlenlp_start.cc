#include "app/start/paddlenlp_start.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"

namespace tern::app {
namespace {

constexpr int32_t kWarmId = 5;  // the id that the original sends

// Runs the same request `count` times at once and waits for all.
Status run_all(engine::EngineClient& engine, const engine::Request& request, int64_t count, engine::RequestId first) {
  for (int64_t i = 0; i < count; ++i) {
    engine::Request one = request;
    one.id = first + static_cast<engine::RequestId>(i);
    one.owner = 1;
    TERN_RETURN_IF_ERROR(engine.submit(std::move(one)));
  }
  std::vector<engine::Delta> news;
  int64_t open = count;
  while (open > 0) {
    news.clear();
    if (!engine.poll(news, std::chrono::milliseconds(100))) {
      return make_error(ErrorCode::kInternal, "the engine ended during the warm-up");
    }
    for (const engine::Delta& delta : news) {
      if (delta.finish == engine::FinishReason::kError) return delta.error;
      if (delta.finish != engine::FinishReason::kNone) --open;
    }
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<PaddleNlpHealth>> PaddleNlpHealth::open(const Settings& settings) {
  if (!settings.paddlenlp || settings.paddlenlp->health_port < 1) return std::unique_ptr<PaddleNlpHealth>();
  const PaddleNlp& p = *settings.paddlenlp;
  std::unique_ptr<PaddleNlpHealth> health(new PaddleNlpHealth(p.health_interval));
  TERN_ASSIGN_OR_RETURN(health->server_,
                        serve::HealthServer::start(settings.serve.host, p.health_port, !p.custom_health));
  return health;
}

void PaddleNlpHealth::serving(const engine::EngineClient& engine) {
  server_->watch([&engine, interval = interval_ns_] {
    const engine::EngineStats stats = engine.stats();
    if (!stats.healthy) return serve::HealthState::kDown;
    const bool hangs = stats.busy_since_ns > 0 && monotonic_ns() - stats.busy_since_ns > interval;
    return hangs ? serve::HealthState::kHangs : serve::HealthState::kReady;
  });
}

void PaddleNlpHealth::release() { server_->watch({}); }

Status warm_up(engine::EngineClient& engine, const PaddleNlp& p, int32_t vocab_size) {
  const int64_t started = monotonic_ns();
  engine::Request request;
  request.external_id = "warm-up";
  request.sampling.repetition_over_prompt = false;
  request.prompt.assign(1, std::min(kWarmId, vocab_size - 1));
  request.max_tokens = static_cast<int32_t>(std::min(p.dec_len_limit, p.max_seq_len - 1));
  request.sampling.min_tokens = std::min(request.max_tokens, static_cast<int32_t>(p.dec_len_limit / 2 + 1));
  const auto engines = static_cast<int64_t>(engine.parts().size());
  const int64_t rows = 2 * p.batch_size * engines, prompts = 2 * p.max_prefill_batch * engines;
  TERN_RETURN_IF_ERROR(run_all(engine, request, rows, 1));
  const auto longest = static_cast<size_t>(std::clamp<int64_t>(p.seq_len_limit, 1, p.max_seq_len - 2));
  request.prompt.assign(longest, request.prompt[0]);
  request.max_tokens = 1;
  request.sampling.min_tokens = 1;
  TERN_RETURN_IF_ERROR(run_all(engine, request, prompts, static_cast<engine::RequestId>(rows) + 1));
  TERN_INFO("warm-up: {} requests in {:.1f} s", rows + prompts, static_cast<double>(monotonic_ns() - started) / 1e9);
  return {};
}

std::string paddlenlp_lines(const Settings& settings, const serve::Server& server) {
  const PaddleNlp& p = *settings.paddlenlp;
  std::string lines;
  const auto add = [&](int port, std::string_view what, std::string_view scheme, std::string_view path) {
    if (port < 1) return;
    lines += fmt::format("{}Launching PaddleNLP {} at {}{}:{}{}", lines.empty() ? "" : "\n", what, scheme,
                         settings.serve.host, port, path);
  };
  const std::string_view scheme = settings.serve.tls != nullptr ? "https://" : "http://";
  add(server.paddlenlp_port(), "service", scheme, "/v1/chat/completions");
  add(server.grpc_port(), "gRPC service", "", "");
  add(server.paddlenlp_metrics_port(), "metrics", scheme, "/metrics");
  add(p.health_port, "health", "http://", "/v2/health/ready");
  return lines;
}

}  // namespace tern::app
