// A model with everything that serves it, in this process.
#pragma once

#include <memory>
#include <optional>

#include "answer/answer_parser.h"
#include "app/paddlenlp/gpu_watch.h"
#include "app/ranks/engines.h"
#include "app/ranks/weights.h"
#include "app/start/service.h"
#include "app/start/trace_file.h"
#include "app/start/vision_parts.h"
#include "app/traces/span_exporter.h"
#include "content/grammar/compiler.h"
#include "serve/server.h"

namespace tern::app {

class LoadedServer {
 public:
  // Device, text, weights, tower and engine; nothing listens yet. With --scripted: text and an engine without a model.
  static Expected<std::unique_ptr<LoadedServer>> load(const Settings& settings);
  ~LoadedServer();  // stops the server, then the engine
  LoadedServer(const LoadedServer&) = delete;
  LoadedServer& operator=(const LoadedServer&) = delete;

  // Binds and serves. Once.
  Status listen();
  serve::Server& server() { return *server_; }
  engine::EngineClient& engine() { return *engine_; }
  const serve::ServeConfig& config() const { return config_; }
  // The model reads pictures.
  bool sees() const { return vision_.tower != nullptr; }

 private:
  LoadedServer() = default;
  Status load_parts(const Settings& settings);
  Status load_scripted(const Settings& settings);

  // In the order in which they need one another.
  std::unique_ptr<LoadedEngines> engines_;  // null with --scripted
  TextParts text_;
  std::optional<answer::AnswerFormat> answers_;
  std::unique_ptr<content::GrammarCompiler> grammars_;
  VisionParts vision_;
  std::unique_ptr<TraceFile> trace_;
  std::unique_ptr<engine::EngineClient> engine_;
  std::unique_ptr<LoadedWeights> weights_;  // null with --scripted
  std::unique_ptr<GpuWatch> gpus_;
  std::unique_ptr<SpanExporter> spans_;  // null: no spans are wanted
  serve::ServeConfig config_;
  std::unique_ptr<serve::Server> server_;
};

}  // namespace tern::app
