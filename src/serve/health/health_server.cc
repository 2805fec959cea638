#include "serve/health/health_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "serve/http/request.h"
#include "serve/http/response.h"

namespace tern::serve {
namespace {

constexpr size_t kMostClients = 256;
constexpr int64_t kClientNs = 5'000'000'000;  // a probe sends its whole request at once
constexpr size_t kMostBytes = 8192;
constexpr int kSweepMs = 500;

std::string_view message_of(HealthState state) {
  switch (state) {
    case HealthState::kStarting:
      return "server is not ready";
    case HealthState::kDown:
      return "infer engine is down";
    case HealthState::kHangs:
      return "infer engine hangs";
    case HealthState::kReady:
      break;
  }
  return "";
}

}  // namespace

Expected<std::unique_ptr<HealthServer>> HealthServer::start(const std::string& host, int port, bool plain) {
  TERN_ASSIGN_OR_RETURN(auto listeners, net::listen_on(host, port));
  return std::unique_ptr<HealthServer>(new HealthServer(std::move(listeners), plain));
}

HealthServer::HealthServer(std::vector<net::Listener> listeners, bool plain)
    : listeners_(std::move(listeners)), plain_(plain) {
  for (size_t i = 0; i < listeners_.size(); ++i) poller_.add(listeners_[i].fd.get(), EPOLLIN, i + 1);
  thread_ = std::thread([this] { run(); });
}

HealthServer::~HealthServer() {
  stopping_.store(true);
  poller_.wake();
  thread_.join();
}

void HealthServer::watch(std::function<HealthState()> state) {
  std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

HealthState HealthServer::state() const {
  std::lock_guard lock(mutex_);
  return state_ ? state_() : HealthState::kStarting;
}

void HealthServer::run() {
  set_thread_name("health");
  while (!stopping_.load()) {
    for (const epoll_event& event : poller_.wait(clients_.empty() ? -1 : kSweepMs)) {
      if (event.data.u64 <= listeners_.size()) {
        accept_from(listeners_[event.data.u64 - 1].fd.get());
      } else if (const auto client = clients_.find(event.data.u64); client != clients_.end()) {
        if (!read_from(client->second)) clients_.erase(client);
      }
    }
    const int64_t now = monotonic_ns();
    std::erase_if(clients_, [&](const auto& entry) { return now > entry.second.deadline_ns; });
  }
}

void HealthServer::accept_from(int listener) {
  net::Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd || clients_.size() >= kMostClients) return;  // closed
  const uint64_t key = next_++;
  if (!poller_.add(fd.get(), EPOLLIN, key)) return;
  clients_.emplace(key, Client{std::move(fd), {}, monotonic_ns() + kClientNs});
}

// One request per connection: what it says is short, and so is the answer.
bool HealthServer::read_from(Client& client) {
  char buffer[2048];
  const ssize_t size = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  client.in.append(buffer, static_cast<size_t>(size));
  const std::string out = answer(client.in);
  if (out.empty()) return client.in.size() < kMostBytes;
  // The socket's buffer is empty: a short answer goes in whole.
  [[maybe_unused]] const ssize_t sent = ::send(client.fd.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(client.fd.get(), SHUT_WR);
  return false;
}

// "" while the head is not complete.
std::string HealthServer::answer(std::string_view request) const {
  http::RequestParser parser({.header_bytes = kMostBytes, .body_bytes = kMostBytes});
  size_t used = 0;
  const auto progress = parser.advance(request, used);
  if (progress == http::RequestParser::Progress::kMore) return {};
  http::Response response;
  bool head_only = false;
  if (progress == http::RequestParser::Progress::kError) {
    response = http::text_response(parser.error_status(), parser.error_text());
  } else {
    const http::Head& head = parser.head();
    head_only = head.method == http::Method::kHead;
    if (head.path != "/v2/health/live" && head.path != "/v2/health/ready") {
      response = http::json_response(404, "{\"detail\":\"Not Found\"}");
    } else if (head.method != http::Method::kGet && !head_only) {
      response = http::json_response(405, "{\"detail\":\"Method Not Allowed\"}");
    } else if (const HealthState found = state(); found == HealthState::kReady) {
      response = {200, "", "", "", false};
    } else if (plain_) {
      response = {400, "", "", "", false};
    } else {
      response = http::json_response(500, fmt::format("{{\"error_code\": {}, \"error_msg\": \"{}\"}}",
                                                      static_cast<int>(found), message_of(found)));
    }
  }
  std::string out;
  http::append_response(out, response, head_only, false, 1);
  return out;
}

}  // namespace tern::serve
