// What the PaddleNLP front adds to the start of a server: its health port, the warm-up, its lines.
#pragma once

#include <memory>
#include <string>

#include "app/config/settings.h"
#include "engine/client.h"
#include "serve/health/health_server.h"
#include "serve/server.h"

namespace tern::app {

// The health port of a server with that front; it says "not ready" until serving() and after it dies.
class PaddleNlpHealth {
 public:
  // Opens the port where there is one.
  static Expected<std::unique_ptr<PaddleNlpHealth>> open(const Settings& settings);
  // The ports are open: from here on the engine decides. It must outlive `this`, or release().
  void serving(const engine::EngineClient& engine);
  void release();

 private:
  explicit PaddleNlpHealth(double interval) : interval_ns_(static_cast<int64_t>(interval * 1e9)) {}
  const int64_t interval_ns_;
  std::unique_ptr<serve::HealthServer> server_;
};

// USE_WARMUP (paddlenlp-server.md 1.6): short prompts with long answers, then the longest prompts, before anybody else
// polls the engine. An error ends the start.
Status warm_up(engine::EngineClient& engine, const PaddleNlp& p, int32_t vocab_size);

// Where that front listens, one line each.
std::string paddlenlp_lines(const Settings& settings, const serve::Server& server);

}  // namespace tern::app
