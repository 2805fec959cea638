// A server in this process over the echo engine, and a client that shows every byte.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tests/eventually.h"
#include "engine/echo.h"
#include "json/json.h"
#include "serve/server.h"

namespace tern::serve::testing {

// The folder tests/protocol/tokenizer: byte-level BPE, 906 ids, <|end|> = 903, a default and a tool template.
struct TextParts {
  std::unique_ptr<content::Tokenizer> tokenizer;
  std::unique_ptr<content::ChatTemplate> chat_template, tool_template;
};
const TextParts& text_parts();

ServeConfig test_config();                // loopback, port chosen by the system
engine::EchoConfig test_engine_config();  // vocabulary and end token of the tokenizer

class TestServer {
 public:
  // `answers`: the parsers of its answers; outlives the server. nullptr: none.
  explicit TestServer(ServeConfig config = test_config(), engine::EchoConfig engine = test_engine_config(),
                      bool with_text = true, const answer::AnswerFormat* answers = nullptr,
                      control::Weights* weights = nullptr);
  ~TestServer();
  Server& server() { return *server_; }
  engine::EngineClient& engine() { return *engine_; }
  int port() const { return server_->port(); }
  // Waits until that many sequences run in the engine.
  bool wait_running(int n) const;
  // Waits until nothing runs or waits in the engine.
  bool wait_idle() const;

 private:
  std::unique_ptr<engine::EngineClient> engine_;
  std::unique_ptr<Server> server_;
};

// An engine whose every delta the test writes.
class RecordingEngine final : public engine::EngineClient {
 public:
  Status submit(engine::Request request) override;
  void abort(engine::RequestId id) override;
  bool poll(std::vector<engine::Delta>& out, std::chrono::milliseconds timeout) override;
  engine::EngineStats stats() const override { return {}; }
  bool healthy() const override { return is_healthy; }
  std::future<Status> control(engine::ControlOrder order) override;
  void shutdown(bool) override {}

  std::vector<engine::Request> requests() const;
  void forget_media();                          // of what was submitted so far
  engine::Request wait_request(size_t number);  // the number-th (from 0) submitted one
  bool wait_abort(engine::RequestId id);
  void say(engine::Delta delta);
  // Tokens of one step, with a finish reason for the last.
  void say(const engine::Request& request, std::vector<int32_t> ids,
           engine::FinishReason finish = engine::FinishReason::kNone, int32_t stop_token = -1);

  std::atomic<bool> refuse{false}, is_healthy{true};
  std::atomic<bool> ends_aborted{false};  // an aborted request gets its last delta at once, as in a real engine

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<engine::Request> seen_;
  std::vector<engine::RequestId> aborted_;
  std::vector<engine::Delta> news_;
};

struct Reply {
  int status = 0;                                            // 0: the connection ended without a whole response
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // chunks joined
  std::string header(std::string_view name) const;
  json::Value json() const;
  std::vector<std::string> events() const;  // the data: lines of a stream
};

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool send(std::string_view bytes);
  // One response; `head` requests have no body.
  Reply receive(bool head_request = false);
  std::string receive_some(size_t max);  // what one recv gives; "" at the end
  bool closed_by_peer(double seconds);   // the end (or a reset) comes within that time
  Reply request(std::string_view method, std::string_view path, std::string_view body = {},
                std::string_view headers = {});
  Reply post(std::string_view path, std::string_view body, std::string_view headers = {}) {
    return request("POST", path, body, headers);
  }
  Reply get(std::string_view path, std::string_view headers = {}) { return request("GET", path, {}, headers); }
  void shut_write();
  void close();
  int fd() const { return fd_; }

 private:
  bool fill();
  int fd_ = -1;
  std::string buffer_;
};

// The value of one metric line ("name{labels}" or "name"), or -1.
double metric(int port, std::string_view name);

}  // namespace tern::serve::testing
