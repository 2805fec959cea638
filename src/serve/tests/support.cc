#include "serve/tests/support.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace tern::serve::testing {

using namespace std::chrono_literals;

const TextParts& text_parts() {
  static const TextParts parts = [] {
    const std::string dir = std::string(TERN_SOURCE_DIR) + "/tests/protocol/tokenizer";
    TextParts p;
    auto tokenizer = content::Tokenizer::load(dir);
    TERN_CHECK_MSG(tokenizer.ok(), tokenizer.error().message);
    p.tokenizer = *std::move(tokenizer);
    auto templates = content::find_templates(dir);
    TERN_CHECK(templates.ok());
    auto chat = content::ChatTemplate::compile(templates->choose(false));
    auto tool = content::ChatTemplate::compile(templates->choose(true));
    TERN_CHECK(chat.ok() && tool.ok());
    p.chat_template = *std::move(chat);
    p.tool_template = *std::move(tool);
    return p;
  }();
  return parts;
}

ServeConfig test_config() {
  ServeConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  config.io_threads = 2;
  config.cpu_threads = 2;
  config.model_path = "models/tiny";
  config.max_model_len = 512;
  config.vocab_size = 906;
  return config;
}

engine::EchoConfig test_engine_config() {
  engine::EchoConfig config;
  config.vocab_size = 906;
  config.eos_token_id = 903;
  config.max_model_len = 512;
  return config;
}

TestServer::TestServer(ServeConfig config, engine::EchoConfig engine, bool with_text,
                       const answer::AnswerFormat* answers, control::Weights* weights)
    : engine_(engine::make_echo_engine(engine)) {
  Content content;
  if (with_text) {
    const TextParts& parts = text_parts();
    content = {parts.tokenizer.get(), parts.chat_template.get(), parts.tool_template.get()};
  }
  content.answers = answers;
  auto server = Server::start(config, *engine_, content, nullptr, weights);
  TERN_CHECK_MSG(server.ok(), server.error().message);
  server_ = *std::move(server);
}

TestServer::~TestServer() {
  server_->stop(0);
  engine_->shutdown(true);
}

bool TestServer::wait_idle() const {
  return eventually([&] {
    const auto stats = engine_->stats();
    return stats.running == 0 && stats.waiting == 0 && server_->open_requests() == 0;
  });
}

bool TestServer::wait_running(int n) const {
  return eventually([&] { return engine_->stats().running >= n; });
}

Status RecordingEngine::submit(engine::Request request) {
  std::lock_guard lock(mutex_);
  seen_.push_back(std::move(request));
  changed_.notify_all();
  if (refuse) return make_error(ErrorCode::kResourceExhausted, "too many requests are waiting");
  return {};
}

void RecordingEngine::abort(engine::RequestId id) {
  std::lock_guard lock(mutex_);
  aborted_.push_back(id);
  if (ends_aborted) {
    engine::Delta end;
    end.id = id;
    end.finish = engine::FinishReason::kAbort;
    news_.push_back(std::move(end));
  }
  changed_.notify_all();
}

std::future<Status> RecordingEngine::control(engine::ControlOrder) {
  std::promise<Status> done;
  done.set_value({});
  return done.get_future();
}

bool RecordingEngine::poll(std::vector<engine::Delta>& out, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return !news_.empty(); });
  for (auto& delta : news_) out.push_back(std::move(delta));
  news_.clear();
  return true;
}

std::vector<engine::Request> RecordingEngine::requests() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

void RecordingEngine::forget_media() {
  std::lock_guard lock(mutex_);
  for (auto& request : seen_) request.media.clear();
}

engine::Request RecordingEngine::wait_request(size_t number) {
  std::unique_lock lock(mutex_);
  const bool there = changed_.wait_for(lock, 5s, [&] { return seen_.size() > number; });
  TERN_CHECK_MSG(there, "the request was never submitted");
  return seen_[number];
}

bool RecordingEngine::wait_abort(engine::RequestId id) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, 5s, [&] { return std::find(aborted_.begin(), aborted_.end(), id) != aborted_.end(); });
}

void RecordingEngine::say(engine::Delta delta) {
  std::lock_guard lock(mutex_);
  news_.push_back(std::move(delta));
  changed_.notify_all();
}

void RecordingEngine::say(const engine::Request& request, std::vector<int32_t> ids, engine::FinishReason finish,
                          int32_t stop_token) {
  engine::Delta delta;
  delta.id = request.id;
  for (const int32_t id : ids) delta.tokens.push_back({id, {}});
  delta.finish = finish;
  delta.stop_token = stop_token;
  delta.prompt_tokens = static_cast<int32_t>(request.prompt.size());
  delta.times.arrival = request.arrival_ns;
  delta.times.scheduled = delta.times.first_token = request.arrival_ns + 1000;
  say(std::move(delta));
}

std::string Reply::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

json::Value Reply::json() const {
  auto value = json::parse(body);
  if (!value.ok()) {
    ADD_FAILURE() << "no JSON: " << body.substr(0, 400);
    return json::Object();
  }
  return *std::move(value);
}

std::vector<std::string> Reply::events() const {
  std::vector<std::string> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    std::string name;
    if (body.compare(at, 7, "event: ") == 0) {
      const size_t line = body.find('\n', at);
      name = body.substr(at + 7, line - at - 7);
      at = line + 1;
    }
    if (!name.empty() && body.compare(at, name.size() + 16, "data: {\"type\":\"" + name + "\"") != 0) {
      ADD_FAILURE() << "an event's name is not its type: " << body.substr(at, 100);
    }
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) {
      ADD_FAILURE() << "broken event stream at byte " << at << ": " << body.substr(at, 100);
      break;
    }
    out.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return out;
}

Client::Client(int port, int receive_buffer) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  const timeval timeout{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
}

Client::~Client() { close(); }

void Client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Client::shut_write() { ::shutdown(fd_, SHUT_WR); }

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Client::fill() {
  char bytes[16384];
  const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
  if (n <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::string Client::receive_some(size_t max) {
  std::string out(max, '\0');
  const ssize_t n = ::recv(fd_, out.data(), max, 0);
  out.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return out;
}

bool Client::closed_by_peer(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    pollfd p{fd_, POLLIN, 0};
    if (::poll(&p, 1, 50) <= 0) continue;
    char bytes[4096];
    if (::recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
  }
  return false;
}

Reply Client::receive(bool head_request) {
  Reply reply;
  size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill()) return reply;
  }
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  const int status = std::atoi(head.substr(9, 3).c_str());
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t stop = head.find("\r\n", at), colon = head.find(": ", at);
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    reply.headers.emplace_back(std::move(name), head.substr(colon + 2, stop - colon - 2));
    at = stop + 2;
  }
  if (head_request || status == 204 || status == 304 || status == 100) {
    reply.status = status;
    return reply;
  }
  if (reply.header("transfer-encoding") == "chunked") {
    while (true) {
      size_t line;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!fill()) return reply;
      }
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2) {
        if (!fill()) return reply;
      }
      reply.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) break;
    }
  } else if (const std::string length = reply.header("content-length"); !length.empty()) {
    const size_t size = std::stoul(length);
    while (buffer_.size() < size) {
      if (!fill()) return reply;
    }
    reply.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
  } else {
    while (fill()) {
    }
    reply.body = std::exchange(buffer_, {});
  }
  reply.status = status;
  return reply;
}

Reply Client::request(std::string_view method, std::string_view path, std::string_view body, std::string_view headers) {
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: test\r\n{}", method, path, headers);
  if (method == "POST" || !body.empty()) {
    out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  out += "\r\n";
  out += body;
  send(out);
  return receive(method == "HEAD");
}

double metric(int port, std::string_view name) {
  const Reply reply = Client(port).get("/metrics");
  std::string wanted = "\n";
  wanted.append(name).append(" ");
  const size_t at = reply.body.find(wanted);
  return at == std::string::npos ? -1 : std::stod(reply.body.substr(at + wanted.size()));
}

}  // namespace tern::serve::testing
