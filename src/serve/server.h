// The HTTP server: OpenAI protocol, health, metrics and control over one EngineClient.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "answer/answer_parser.h"
#include "base/error.h"
#include "content/grammar/compiler.h"
#include "content/media/media.h"
#include "content/media/profile/vision_profile.h"
#include "content/text/chat_template.h"
#include "content/text/tokenizer.h"
#include "engine/client.h"
#include "serve/config.h"

namespace tern::serve {

class Dispatcher;

namespace control {
class Weights;  // control/weights.h
}

namespace kserve {  // transport.h
class Host;
class Transport;
struct Options;
using Start = Transport* (*)(uint64_t interface, const Options& options, Host& host, std::string& error);
}  // namespace kserve

// What turns text into ids and back. Any of them may be null: without a tokenizer only token-id prompts are served,
// without a template chat requests need `disable_chat_template` or token ids. All must outlive the server, but for the
// media service, which may end earlier. Pictures need both of the last two.
struct Content {
  const content::Tokenizer* tokenizer = nullptr;
  const content::ChatTemplate* chat_template = nullptr;
  const content::ChatTemplate* tool_template = nullptr;  // for requests with tools; null: chat_template
  const content::VisionProfile* vision = nullptr;        // null: a model of text only
  content::MediaService* media = nullptr;
  const answer::AnswerFormat* answers = nullptr;  // parsers of thoughts and calls; null: answers are content
  content::GrammarCompiler* grammars = nullptr;   // null: guided decoding and forced calls are refused
};

class Server {
 public:
  // Binds, listens and serves; the engine must be ready. Starts the thread that polls the engine: from here on only the
  // server calls EngineClient::poll. Errors: a taken port (kIo, the message names the address), a bad address.
  // `grpc`: of the transport's library, where the configuration names a port for it. `weights`: what control orders
  // give back and read again; outlives the server.
  static Expected<std::unique_ptr<Server>> start(const ServeConfig& config, engine::EngineClient& engine,
                                                 const Content& content, kserve::Start grpc = nullptr,
                                                 control::Weights* weights = nullptr);
  ~Server();  // stop(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Ports bound; 0 where there is no such listener of its own.
  int port() const;
  int metrics_port() const;
  int controller_port() const;
  int paddlenlp_port() const;
  int paddlenlp_metrics_port() const;
  int grpc_port() const;

  // Takes no new connections and no new requests, waits up to `drain_seconds` for the open ones, aborts the rest and
  // joins every thread. Does not end the engine. Idempotent; callable from any thread but the server's own.
  void stop(double drain_seconds);
  // Makes a stop() drain no longer: what is open is aborted, and its streams get their end. Async-signal-safe.
  void stop_now();
  // From here on clients must send one of these keys; there is at least one. What is being answered goes on.
  void replace_keys(const std::vector<std::string>& keys);
  // New connections get these certificates. Only where ServeConfig::tls was set.
  void replace_certificates(std::shared_ptr<const tls::Context> context);
  // Waits until stop() has finished or the engine has ended on its own.
  void wait();
  // Requests being answered now.
  int open_requests() const;
  // For sinks beside those of HTTP; stops with the server.
  Dispatcher& dispatcher();

 private:
  Server();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The lines scripts wait for (FastDeploy 2.1), one per line, without a newline at the end.
std::string startup_lines(const ServeConfig& config, int port, int metrics_port);

// One periodic scheduler line from two readings `seconds` apart ("" when nothing ran).
std::string scheduler_line(const engine::EngineStats& before, const engine::EngineStats& now, double seconds);

// True when the host is reachable from other machines and no key is set: app then prints a warning.
bool open_to_everyone(const ServeConfig& config);

}  // namespace tern::serve
